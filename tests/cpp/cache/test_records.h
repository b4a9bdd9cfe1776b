// Records for the tests of the store.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "base/file.h"
#include "base/sha256.h"
#include "cache/kernel_store.h"

namespace cudaforge {

inline constexpr char kTestArch[] = "cpu:x86-64-v4";

// `bytes` with a valid checksum, to test the checks after it.
inline std::string Sealed(std::string bytes) {
  bytes.resize(bytes.size() - 16);
  return bytes + RecordChecksum(bytes);
}

inline void SetSignature(CacheRecord* record, const Json& signature) {
  record->signature = CanonicalJson(signature);
  record->key = Sha256Hex(record->signature);
}

inline Json SignatureOf(const CacheRecord& record) { return ParseJson(record.signature).value(); }

// Winner number `i` with a lower bound of `speedup` and a binary of `bytes` half-random bytes.
inline CacheRecord TestWinner(int i, double speedup = 1.5, size_t bytes = 2000) {
  CacheRecord record;
  SetSignature(&record, {{"format", 1}, {"number", i}, {"nodes", {0}}});
  record.arch = kTestArch;
  Variant kernel;
  kernel.candidate = CanonicalJson({{"source", "kernel " + std::to_string(i)}, {"of", speedup}});
  std::mt19937_64 random(static_cast<uint64_t>(i));
  while (kernel.binary.size() < bytes) {
    kernel.binary += static_cast<char>(random());
    kernel.binary += static_cast<char>(i);
  }
  kernel.verification = R"({"cases":["normal","uniform"]})";
  kernel.timing =
      CanonicalJson({{"winner_us", 3.25}, {"speedup", {speedup, speedup + 0.1, speedup + 0.2}}});
  record.variants = {kernel};
  record.provenance = R"({"author":"generator:test"})";
  record.versions = {{"cudaforge", "0.1"}};
  return record;
}

// Only for eager calls, with a lower bound of `speedup` over ATen.
inline CacheRecord TestEagerOnly(int i, double speedup = 1.5) {
  CacheRecord record = TestWinner(i, speedup);
  record.variants[0].timing =
      CanonicalJson({{"winner_us", 3.25},
                     {"speedup", {0.9, 0.9, 0.9}},
                     {"speedup_over_aten", {speedup, speedup + 0.1, speedup + 0.2}}});
  return record;
}

inline CacheRecord TestNegative(int i) {
  CacheRecord record = TestWinner(i);
  record.timing = record.variants[0].timing;
  record.variants.clear();
  return record;
}

// A new folder, in memory if possible, because these tests sync thousands of small files.
inline TempDir TestFolder() {
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
  return TempDir::Create("cudaforge-store").value();
}

// Adds one region to the wanted list.
inline Status Want(KernelStore& store, std::string key, std::string arch, Json signature) {
  const WantedRegion region{std::move(key), std::move(arch), std::move(signature)};
  return store.AddWanted({&region, 1});
}

// A writable store in `folder`.
inline std::unique_ptr<KernelStore> OpenStore(const std::string& folder) {
  return OpenRocksKernelStore(folder, true).value();
}

}  // namespace cudaforge
