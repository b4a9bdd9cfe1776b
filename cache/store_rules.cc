#include "cache/store_rules.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cudaforge {

std::string StoreKey(std::string_view key, std::string_view arch) {
  return std::string(key) + " " + std::string(arch);
}

Status CheckStoreKey(std::string_view key, std::string_view arch) {
  const bool hex = key.size() == 64 && std::all_of(key.begin(), key.end(), [](char c) {
                     return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                   });
  if (!hex) return Status::InvalidArgument("a key is 64 lower-case hexadecimal digits");
  if (!IsArchName(arch)) return Status::InvalidArgument("invalid name of an arch");
  return Status::Ok();
}

Result<std::vector<std::string>> StorableBytes(std::span<const CacheRecord> records) {
  std::vector<std::string> all;
  for (const CacheRecord& record : records) {
    CF_RETURN_IF_ERROR(record.Validate());
    all.push_back(record.Encode());
    const auto decoded = CacheRecord::Decode(all.back());
    if (!decoded.ok()) {
      return Status::InvalidArgument("a record that cannot be stored: " +
                                     decoded.status().message());
    }
  }
  return all;
}

bool TakesPlaceOf(const CacheRecord& incoming, const CacheRecord* existing, Stays stays) {
  if (existing == nullptr || stays == Stays::kNone) return true;
  if (!JudgedAlike(incoming.versions, existing->versions)) return true;
  if (existing->doubtful != 0) return true;
  if (incoming.doubtful != 0) return existing->RanOutOfTime();
  const bool serves = incoming.Serves().compiled, served = existing->Serves().compiled;
  if (stays == Stays::kUnlessMore) {
    return incoming.has_kernel() > existing->has_kernel() || serves > served ||
           (existing->RanOutOfTime() && !incoming.RanOutOfTime());
  }
  if (!served) return true;
  // Another race of the same kernel only adds another sample of the noise.
  if (std::ranges::equal(incoming.variants, existing->variants, {}, &Variant::candidate,
                         &Variant::candidate)) {
    return false;
  }
  return serves && incoming.SpeedupLow() > existing->SpeedupLow();
}

std::vector<Json> SettledNodes(const std::vector<Json>& lineage) {
  std::map<std::pair<std::string, int64_t>, size_t> places;
  std::vector<Json> nodes;
  for (const Json& node : lineage) {
    const Json& name = MemberOrNull(node, "session");
    const std::string session = name.is_string() ? name.get<std::string>() : "";
    const Result<int64_t> id = JsonInt(node, "id");
    if (session.empty() || !id.ok()) {
      nodes.push_back(node);
      continue;
    }
    const auto [place, is_new] = places.try_emplace({session, *id}, nodes.size());
    if (is_new) {
      nodes.push_back(node);
    } else {
      nodes[place->second] = node;
    }
  }
  return nodes;
}

}  // namespace cudaforge
