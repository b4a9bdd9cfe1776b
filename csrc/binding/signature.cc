#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "base/config.h"
#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/runtime.h"
#include "generators/generator.h"
#include "signature/from_aten_region.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

py::dict ConfigDict() {
  const Config& config = GlobalConfig();
  py::dict dict;
  dict["disabled"] = config.disabled;
  dict["on_miss"] = OnMissName(config.on_miss);
  dict["region_budget_s"] = config.region_budget_s;
  dict["cache_dir"] = config.cache_dir;
  dict["cxx"] = config.cxx;
  dict["log"] = config.log;
  dict["warnings"] = config.warnings;
  return dict;
}

OpSignature Parse(const std::string& text) { return ValueOrThrow(OpSignature::Parse(text)); }

std::optional<std::string> Refusal(const std::string& text) {
  py::gil_scoped_release release;
  const Status status = CanGenerate(Parse(text));
  if (status.ok()) return std::nullopt;
  return status.message();
}

void BindProgram(py::module_& m) {
  py::class_<RegionProgram>(m, "RegionProgram")
      .def(py::init([](const std::string& signature) {
             return ValueOrThrow(RegionProgram::Create(Parse(signature)));
           }),
           py::arg("signature"))
      .def(
          "run",
          [](const RegionProgram& program, const std::vector<at::Tensor>& inputs) {
            return program.Run(inputs);
          },
          py::arg("inputs"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void BindSignature(py::module_& m) {
  m.def(
      "configure",
      [](std::vector<std::string> cuda_search_paths, std::string worker) {
        Runtime::Get().Configure(std::move(cuda_search_paths), std::move(worker));
      },
      py::arg("cuda_search_paths"), py::arg("worker"));
  m.def("config", &ConfigDict);
  m.def("cuda_search_paths", [] { return Runtime::Get().cuda_search_paths(); });
  m.def("worker_path", [] { return Runtime::Get().worker(); });

  m.def("anchor_ops", &AnchorOps);
  m.def("pointwise_ops", &PointwiseOps);
  m.def("can_generate", &Refusal, py::arg("signature"));

  m.def(
      "normalize",
      [](const std::string& text) { return ValueOrThrow(NormalizeAten(Parse(text))).Canonical(); },
      py::arg("signature"));
  m.def(
      "canonical", [](const py::dict& json) { return CanonicalJson(FromPython(json)); },
      py::arg("json"));
  m.def(
      "signature_key", [](const std::string& text) { return Parse(text).Key(); },
      py::arg("signature"));
  m.def(
      "describe", [](const std::string& text) { return Parse(text).Describe(); },
      py::arg("signature"));
  m.def("region_id", &RegionId, py::arg("key"));
  BindProgram(m);
}

}  // namespace cudaforge::binding
