#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "base/file.h"
#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/record_py.h"
#include "binding/signature_py.h"
#include "binding/text.h"
#include "runtime/runtime.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;
using StorePtr = std::shared_ptr<KernelStore>;

template <typename Work>
auto WithoutGil(const Work& work) {
  py::gil_scoped_release release;
  return work();
}

CacheRecord RecordFrom(const py::dict& dict, const py::object& candidate,
                       const std::string& binary) {
  const Json json = FromPython(dict);
  CacheRecord record;
  record.key = ValueOrThrow(JsonString(json, "key"));
  record.arch = ValueOrThrow(JsonString(json, "arch"));
  if (json.contains("doubtful")) record.doubtful = ValueOrThrow(JsonInt(json, "doubtful"));
  ThrowIfError(record.SetFields(json));
  if (!candidate.is_none()) {
    record.variants = {{.candidate = CanonicalJson(FromPython(candidate)),
                        .binary = binary,
                        .verification = std::exchange(record.verification, ""),
                        .timing = std::exchange(record.timing, "")}};
  }
  return record;
}

py::list ToList(const std::vector<Json>& values) {
  py::list list;
  for (const Json& value : values) list.append(ToPython(value));
  return list;
}

std::shared_ptr<const CacheRecord> Find(KernelStore& store, const std::string& key,
                                        const std::string& arch) {
  return WithoutGil([&] { return store.Get(key, arch); });
}

std::shared_ptr<const CacheRecord> MustFind(KernelStore& store, const std::string& key,
                                            const std::string& arch) {
  std::shared_ptr<const CacheRecord> record = Find(store, key, arch);
  if (!record) throw StatusError(Status::NotFound("no record for " + key + " on " + arch));
  return record;
}

py::object Get(KernelStore& store, const std::string& key, const std::string& arch) {
  const std::shared_ptr<const CacheRecord> record = Find(store, key, arch);
  if (!record) return py::none();
  return RecordDict(store, *record);
}

// The data that graph planning needs of every region, and no more. None also for a record that is
// not current, and (counted) for one with damaged evidence.
py::object Verdict(KernelStore& store, const std::string& key, const std::string& arch) {
  const std::shared_ptr<const CacheRecord> record = Find(store, key, arch);
  if (!record || !Runtime::Get().IsCurrent(*record)) return py::none();
  py::dict dict;
  dict["kind"] = record->kind();
  dict["provenance"] = py::none();
  dict["serves"] = ServesList(*record);
  if (!record->Serves().compiled) {
    const Result<Json> fields = record->Fields();
    if (!fields.ok()) {
      store.CountCorrupt(1);
      return py::none();
    }
    dict["provenance"] = ToPython((*fields)["provenance"]);
  }
  dict["checksum"] = record->checksum;
  dict["stale"] = Runtime::Get().IsStale(*record);
  return dict;
}

py::object CandidateOf(KernelStore& store, const std::string& key, const std::string& arch) {
  const std::shared_ptr<const CacheRecord> record = MustFind(store, key, arch);
  if (!record->has_kernel()) return py::none();
  return ToPython(JsonOrNull(record->variants[0].candidate));
}

py::bytes Binary(KernelStore& store, const std::string& key, const std::string& arch) {
  const std::shared_ptr<const CacheRecord> record = MustFind(store, key, arch);
  return py::bytes(record->has_kernel() ? record->variants[0].binary : "");
}

void Put(KernelStore& store, const py::dict& dict, const py::object& candidate,
         const std::string& binary, bool replace) {
  const CacheRecord record = RecordFrom(dict, candidate, binary);
  ThrowIfError(WithoutGil([&] { return store.Put(record, replace); }));
}

template <auto forget>
void Forget(KernelStore& store, const std::string& key, const std::string& arch) {
  ThrowIfError(WithoutGil([&] { return (store.*forget)(key, arch); }));
}

py::list Records(KernelStore& store, const std::string& arch) {
  py::list list;
  const auto append = [&](const CacheRecord& record) {
    py::gil_scoped_acquire acquire;
    const py::object dict = RecordDict(store, record);
    if (!dict.is_none()) list.append(dict);
    return true;
  };
  ThrowIfError(WithoutGil([&] { return store.ForEach(arch, append); }));
  return list;
}

using RegionOnArch = std::pair<Signature, std::string>;

std::vector<WantedRegion> WantedRegions(const std::vector<RegionOnArch>& regions) {
  std::vector<WantedRegion> wanted;
  for (const auto& [signature, arch] : regions) {
    wanted.push_back({signature.key, arch, signature.ToJson()});
  }
  return wanted;
}

py::dict Counters(const KernelStore& store) {
  const StoreCounters counters = store.counters();
  py::dict dict;
  dict["reads"] = counters.reads;
  dict["hits"] = counters.hits;
  dict["writes"] = counters.writes;
  dict["corrupt"] = counters.corrupt;
  dict["errors"] = counters.errors;
  return dict;
}

// None if there is no problem.
py::object Problem(const Status& status) {
  if (status.ok()) return py::none();
  return MessageText(status.ToString());
}

StorePtr OpenStore(const std::filesystem::path& folder, bool writable) {
  return ValueOrThrow(WithoutGil([&] { return OpenRocksKernelStore(folder, writable); }));
}

py::object UseCache(const std::filesystem::path& folder) {
  return Problem(WithoutGil([&] { return Runtime::Get().UseCache(folder); }));
}

// A lock among processes with the same cache: only one forges a region. Does nothing without a
// lockable file: a store in memory, or a read-only folder.
class RegionLock {
 public:
  RegionLock() = default;
  RegionLock(FileLock lock, std::string path) : lock_(std::move(lock)), path_(std::move(path)) {}
  ~RegionLock() { Release(); }
  RegionLock(const RegionLock&) = delete;
  RegionLock& operator=(const RegionLock&) = delete;
  void Release() {
    std::error_code ignored;
    if (lock_.has_value()) std::filesystem::remove(path_, ignored);
    lock_.reset();
  }

 private:
  std::optional<FileLock> lock_;
  std::string path_;
};

// nullptr: another process still has it.
std::unique_ptr<RegionLock> LockRegion(KernelStore& store, const std::string& key,
                                       const std::string& arch, double seconds) {
  const std::string folder = store.location() + "/forging";
  if (!PathExists(store.location()) || !MakeDirs(folder).ok()) {
    return std::make_unique<RegionLock>();
  }
  const std::string path = folder + "/" + key + " " + arch;
  for (int tries = 0; tries < 3; ++tries) {  // the previous holder may have removed the file
    Result<FileLock> lock = FileLock::Acquire(path, static_cast<int>(seconds * 1e3));
    if (lock.status().code() == StatusCode::kTimeout) return nullptr;
    if (!lock.ok()) break;
    if (lock->IsAt(path)) return std::make_unique<RegionLock>(*std::move(lock), path);
  }
  return std::make_unique<RegionLock>();
}

}  // namespace

void BindStore(py::module_& m) {
  py::class_<RegionLock>(m, "RegionLock").def("release", &RegionLock::Release);
  py::class_<KernelStore, StorePtr>(m, "KernelStore")
      .def_static("open", &OpenStore, py::arg("folder"), py::arg("writable") = false)
      .def("get", &Get, py::arg("key"), py::arg("arch"))
      .def("verdict", &Verdict, py::arg("key"), py::arg("arch"))
      .def("lock_region", &LockRegion, py::arg("key"), py::arg("arch"), py::arg("seconds"),
           py::call_guard<py::gil_scoped_release>())
      .def("candidate", &CandidateOf, py::arg("key"), py::arg("arch"))
      .def("delete", &Forget<&KernelStore::Delete>, py::arg("key"), py::arg("arch"))
      .def("remove_wanted", &Forget<&KernelStore::RemoveWanted>, py::arg("key"), py::arg("arch"))
      .def("records", &Records, py::arg("arch") = "")
      .def(
          "put_graph",
          [](KernelStore& store, const std::string& graph, const std::string& arch,
             const py::dict& facts, const std::vector<RegionOnArch>& wanted) {
            const Json json = FromPython(facts);
            py::gil_scoped_release release;
            ThrowIfError(store.PutGraph(graph, arch, json, WantedRegions(wanted)));
          },
          py::arg("graph"), py::arg("arch"), py::arg("facts"),
          py::arg("wanted") = std::vector<RegionOnArch>())
      .def(
          "get_graph",
          [](KernelStore& store, const std::string& graph, const std::string& arch) -> py::object {
            const auto facts = WithoutGil([&] { return store.GetGraph(graph, arch); });
            return facts ? ToPython(*facts) : py::none();
          },
          py::arg("graph"), py::arg("arch"))
      .def(
          "wanted",
          [](KernelStore& store, const std::string& arch) {
            return ToList(WithoutGil([&] { return store.Wanted(arch); }));
          },
          py::arg("arch") = "")
      .def(
          "add_wanted",
          [](KernelStore& store, const std::vector<RegionOnArch>& regions) {
            ThrowIfError(WithoutGil([&] { return store.AddWanted(WantedRegions(regions)); }));
          },
          py::arg("regions"))
      .def(
          "lineage",
          [](KernelStore& store, const std::string& key, const std::string& arch) {
            return ToList(WithoutGil([&] { return SettledNodes(store.Lineage(key, arch)); }));
          },
          py::arg("key"), py::arg("arch"))
      .def("counters", &Counters)
      .def("location", [](const KernelStore& store) { return PathText(store.location()); })
      .def("health", [](const KernelStore& store) { return Problem(store.health()); })
      .def("take_warnings",
           [](KernelStore& store) {
             py::list list;
             for (const std::string& warning : store.TakeWarnings()) {
               list.append(MessageText(warning));
             }
             return list;
           })
      // For tests: separate stores, and arbitrary records.
      .def_static("in_memory", [] { return StorePtr(MakeMemoryKernelStore()); })
      .def("binary", &Binary, py::arg("key"), py::arg("arch"))
      .def("put", &Put, py::arg("record"), py::arg("candidate").none(true), py::arg("binary"),
           py::arg("replace") = false);
  m.def("store", [] { return Runtime::Get().store(); });
  m.def("use_cache", &UseCache, py::arg("folder"));
}

}  // namespace cudaforge::binding
