// The knowledge base: short documents on how to write fast kernels here, compiled into the program.
// The query alone determines which ones an agent gets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

// The tags say what a document applies to. Without tags of one kind, it applies to all of that
// kind.
struct Document {
  std::string id;                      // "guidance/memory_bound"
  std::string text;                    // Markdown, begins with its title
  std::vector<std::string> languages;  // "cuda", "cpu", "triton"
  std::vector<std::string> kinds;      // as RegionKind names them
  std::vector<std::string> archs;      // "sm_90", "x86-64"
  std::vector<std::string> limiters;   // "memory", "compute", "latency"
};

// All documents, sorted by id. Valid for the life of the process; thread-safe.
const std::vector<Document>& AllDocuments();
// Returns nullptr if there is no such document.
const Document* FindDocument(std::string_view id);

struct KnowledgeQuery {
  std::string language = {};     // "cuda", "cpu", "triton"
  std::string region_kind = {};  // see RegionKind; "": no document about a kind
  std::string arch = {};         // "cuda:sm_90a", "cpu:x86-64-v4+1f0c93ab"
  std::string limiter = {};      // "memory", "compute", "latency"; "" before a measurement
};

// Returns documents for a prompt. First the language's contract ("contract/cuda") and
// "contract/verification", always. Then documents whose tags all match, most specific first (kind,
// limiter, arch), while whole documents fit into `max_bytes` together. `left_out`, unless null,
// receives matches that did not fit. Deterministic. REQUIRES: the language has a contract.
std::vector<const Document*> Retrieve(const KnowledgeQuery& query, size_t max_bytes,
                                      std::vector<const Document*>* left_out = nullptr);

}  // namespace cudaforge
