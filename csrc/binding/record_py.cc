#include "binding/record_py.h"

#include "binding/json_py.h"
#include "forge/trial.h"
#include "runtime/runtime.h"
#include "signature/op_signature.h"

namespace cudaforge::binding {

namespace py = pybind11;

py::list ServesList(const CacheRecord& record) {
  const Served served = record.Serves();
  py::list list;
  if (served.compiled) list.append("compiled");
  if (served.eager) list.append("eager");
  return list;
}

py::object RecordDict(KernelStore& store, const CacheRecord& record) {
  const Result<Json> fields = record.Fields();
  if (!fields.ok() || !OpSignature::FromJson((*fields)["signature"]).ok()) {
    store.CountCorrupt(1);
    return py::none();
  }
  py::dict dict;
  dict["kind"] = record.kind();
  dict["key"] = record.key;
  dict["arch"] = record.arch;
  for (const auto& [name, field] : fields->items()) dict[name.c_str()] = ToPython(field);
  const Json& author = MemberOrNull((*fields)["provenance"], "author");
  dict["by_agent"] = author.is_string() && IsByAgent(author.get_ref<const std::string&>());
  dict["current"] = JudgedByThisBuild(record);
  dict["doubtful"] = record.doubtful;
  dict["serves"] = ServesList(record);
  size_t binary_bytes = 0;
  for (const Variant& variant : record.variants) binary_bytes += variant.binary.size();
  dict["binary_bytes"] = binary_bytes;
  dict["checksum"] = record.checksum;
  return dict;
}

}  // namespace cudaforge::binding
