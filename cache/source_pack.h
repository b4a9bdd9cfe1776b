// Source packs: a folder per kernel, with files that people and version control can read. FORMAT.md
// has the form. They have no binaries: the importer builds them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/kernel_store.h"
#include "cache/pack.h"

namespace cudaforge {

// Writes every kernel that is not doubtful into a folder of its own under `folder`, which is
// created. `arch` empty: the only arch there is. Replaces files of the same region, and keeps
// others. Rejects a record that cannot be text. Errors: kInvalidArgument (kernels of several archs,
// whose folders would clash: nothing is written), kIoError.
Result<PackSummary> WriteSourcePack(KernelStore& store, const std::string& folder,
                                    std::string_view arch);

// Reads the kernels under `folder`, sorted by folder name. An invalid one is an error in its place
// that begins with its folder's name. Binaries are empty. The files are untrusted. kNotFound: no
// folder, or none with a kernel.
Result<std::vector<Result<CacheRecord>>> ReadSourcePack(const std::string& folder);

}  // namespace cudaforge
