// The knowledge base: short documents about how kernels are written here and what makes them fast,
// compiled into the program. Which of them an agent is given is a function of the query alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cudaforge {

// A document is about what its tags say. No tag of a sort: it holds for all of that sort.
struct Document {
  std::string id;                      // "guidance/memory_bound"
  std::string text;                    // Markdown, begins with its title
  std::vector<std::string> languages;  // "cuda", "cpu", "triton"
  std::vector<std::string> kinds;      // as RegionKind names them
  std::vector<std::string> archs;      // "sm_90", "x86-64"
  std::vector<std::string> limiters;   // "memory", "compute", "latency"
};

// All of them, sorted by id. Valid for the life of the process; thread-safe.
const std::vector<Document>& AllDocuments();
// nullptr where there is no such document.
const Document* FindDocument(std::string_view id);

struct KnowledgeQuery {
  std::string language = {};     // "cuda", "cpu", "triton"
  std::string region_kind = {};  // see RegionKind; "" asks for no document of a kind
  std::string arch = {};         // "cuda:sm_90a", "cpu:x86-64-v4+1f0c93ab"
  std::string limiter = {};      // "memory", "compute", "latency"; "" before anything was measured
};

// The contract of the language ("contract/cuda") and what holds for all
// ("contract/verification"), always and first; then every document all of whose tags match, most
// specific first (kind, limiter, arch), as many whole ones as fit into `max_bytes` of text, the
// contracts included. `left_out`, unless null, gets those that match and did not fit, in the same
// order. Deterministic. REQUIRES: a contract of the language.
std::vector<const Document*> Retrieve(const KnowledgeQuery& query, size_t max_bytes,
                                      std::vector<const Document*>* left_out = nullptr);

}  // namespace cudaforge
