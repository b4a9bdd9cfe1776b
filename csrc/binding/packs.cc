#include <pybind11/stl.h>

#include "binding/errors.h"
#include "binding/module.h"
#include "binding/text.h"
#include "cache/pack.h"
#include "cache/source_pack.h"
#include "forge/admission.h"
#include "runtime/runtime.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

Result<Bench> BenchOf(DeviceType device) {
  Runtime& runtime = Runtime::Get();
  CF_ASSIGN_OR_RETURN(Target * target, runtime.TargetFor(device, 0));
  return Bench{target->arch(), runtime.WorkshopFor(runtime.store(), target->arch())};
}

py::dict SummaryDict(const PackSummary& summary) {
  py::dict dict;
  dict["exported"] = summary.exported;
  dict["imported"] = summary.imported;
  dict["without_winner"] = summary.without_winner;
  dict["kept_existing"] = summary.kept_existing;
  dict["rejected"] = summary.rejected;
  py::list problems;
  for (const std::string& problem : summary.problems) problems.append(MessageText(problem));
  dict["problems"] = problems;
  return dict;
}

// ExportPack or WriteSourcePack.
template <auto write>
py::dict Export(KernelStore& store, const std::string& path, const std::string& arch) {
  PackSummary summary;
  {
    py::gil_scoped_release release;
    summary = ValueOrThrow(write(store, path, arch));
  }
  return SummaryDict(summary);
}

py::dict AdoptPack(const std::string& file, const py::object& tell, bool replace) {
  PackSummary summary;
  {
    py::gil_scoped_release release;
    ImportHooks hooks;
    hooks.accept = [](CacheRecord* record) {
      const Status status = AdmitRecord(&BenchOf, record);
      py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      return status;
    };
    hooks.tell = [&tell](Imported what, const std::string& line) {
      constexpr const char* kNames[] = {"stored", "kept", "rejected"};
      py::gil_scoped_acquire acquire;
      if (!tell.is_none()) tell(kNames[static_cast<int>(what)], MessageText(line));
    };
    summary = ValueOrThrow(ImportPack(*Runtime::Get().store(), file, hooks, replace));
  }
  return SummaryDict(summary);
}

}  // namespace

void BindPacks(py::module_& m) {
  m.def("export_pack", &Export<ExportPack>, py::arg("store"), py::arg("file"),
        py::arg("arch") = "");
  m.def("export_sources", &Export<WriteSourcePack>, py::arg("store"), py::arg("folder"),
        py::arg("arch") = "");
  m.def("adopt_pack", &AdoptPack, py::arg("file"), py::arg("tell") = py::none(),
        py::arg("replace") = false);
}

}  // namespace cudaforge::binding
