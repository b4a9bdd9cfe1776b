#include "worker/launch_buffers.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "target/shared_memory.h"

namespace cudaforge {
namespace {

Verdict VerdictWith(VerdictKind kind, std::string message, Json evidence = Json::object()) {
  return {kind, std::move(message), std::move(evidence)};
}

uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// The distance in bytes from an address to a range; 0 inside.
uint64_t Distance(uint64_t address, uint64_t begin, uint64_t end) {
  if (address < begin) return begin - address;
  return address < end ? 0 : address - end + 1;
}

// The nearest buffer whose mapping or guards contain the address; else nullptr.
const LaunchBuffer* NearestBuffer(uint64_t address, const LaunchBuffers& buffers) {
  const LaunchBuffer* nearest = nullptr;
  uint64_t least = UINT64_MAX;
  for (const LaunchBuffer& one : buffers.all) {
    const uint64_t mapping = AddressOf(one.mapping->buffer.data());
    const auto size = static_cast<uint64_t>(one.mapping->buffer.bytes());
    if (Distance(address, mapping, mapping + size) > uint64_t{kMapGuardBytes}) continue;
    const uint64_t begin = AddressOf(one.data);
    const uint64_t distance = Distance(address, begin, begin + static_cast<uint64_t>(one.bytes));
    if (distance >= least) continue;
    nearest = &one;
    least = distance;
  }
  return nearest;
}

Verdict VerdictNear(const FaultReport& fault, const LaunchBuffer& buffer) {
  const uint64_t begin = AddressOf(buffer.data);
  const uint64_t end = begin + static_cast<uint64_t>(buffer.bytes);
  const uint64_t distance = Distance(fault.address, begin, end);
  const std::string did = fault.write ? "wrote" : "read";
  Json evidence = {{"buffer", buffer.name}, {"access", fault.write ? "write" : "read"}};
  if (distance == 0) {
    const uint64_t byte = fault.address - begin;
    evidence["byte"] = byte;
    if (buffer.is_input && fault.write) {
      return VerdictWith(VerdictKind::kModifiedInput,
                         "wrote into " + buffer.name + ", at byte " + std::to_string(byte),
                         std::move(evidence));
    }
    return VerdictWith(VerdictKind::kMemoryFault,
                       "a memory fault in " + buffer.name + ", at byte " + std::to_string(byte),
                       std::move(evidence));
  }
  const bool before = fault.address < begin;
  evidence[before ? "before_bytes" : "after_bytes"] = distance;
  return VerdictWith(VerdictKind::kMemoryFault,
                     did + " outside a buffer: " + std::to_string(distance) +
                         (distance == 1 ? " byte " : " bytes ") + (before ? "before " : "after ") +
                         buffer.name + ", which has " + std::to_string(buffer.bytes),
                     std::move(evidence));
}

}  // namespace

Result<LaunchBuffers> FindBuffers(const LaunchRequest& launch, const OpSignature& signature,
                                  std::span<const int64_t> scratch_bytes, size_t prepared,
                                  const Mappings& mappings) {
  LaunchBuffers found;
  const size_t unprepared = scratch_bytes.size() - std::min(prepared, scratch_bytes.size());
  const auto add = [&](const Placed& placed, int64_t bytes, std::string name,
                       std::vector<void*>& pointers) -> Status {
    const bool is_input = &pointers == &found.inputs;
    const bool is_prepared = &pointers == &found.scratch && found.scratch.size() >= unprepared;
    const bool is_scratch = &pointers == &found.scratch && !is_prepared;
    const auto entry = mappings.find(placed.mapping);
    if (entry == mappings.end()) {
      return Status::InvalidArgument(name + ": there is no mapping " +
                                     std::to_string(placed.mapping));
    }
    const Mapping& mapping = entry->second;
    const int64_t room = mapping.buffer.bytes();
    if (placed.offset < 0 || placed.offset > room || bytes > room - placed.offset) {
      return Status::InvalidArgument(name + ": is outside its mapping");
    }
    if (!is_input && !(is_prepared && !launch.prepare) && !mapping.writable) {
      return Status::InvalidArgument(name + ": is in a mapping that is not writable");
    }
    void* const data = static_cast<char*>(mapping.buffer.data()) + placed.offset;
    pointers.push_back(data);
    found.all.push_back({std::move(name), is_input, is_scratch, is_prepared, placed.mapping,
                         &mapping, data, bytes});
    return Status::Ok();
  };
  if (launch.inputs.size() != signature.inputs.size() ||
      launch.outputs.size() != signature.outputs.size() ||
      launch.scratch.size() != scratch_bytes.size()) {
    return Status::InvalidArgument("a launch with another number of buffers than the kernel has");
  }
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    CF_RETURN_IF_ERROR(add(launch.inputs[i], signature.inputs[i].StorageBytes(),
                           "input " + std::to_string(i), found.inputs));
  }
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    CF_RETURN_IF_ERROR(add(launch.outputs[i], signature.output_spec(i).StorageBytes(),
                           "output " + std::to_string(i), found.outputs));
  }
  for (size_t i = 0; i < launch.scratch.size(); ++i) {
    const std::string name = i < unprepared ? "scratch buffer " + std::to_string(i)
                                            : "prepared buffer " + std::to_string(i - unprepared);
    CF_RETURN_IF_ERROR(add(launch.scratch[i], scratch_bytes[i], name, found.scratch));
  }
  return found;
}

Verdict VerdictOfFault(const FaultReport& fault, const LaunchBuffers& buffers) {
  if (fault.read_clock) {
    return VerdictWith(VerdictKind::kRefused, "reads the processor's clock",
                       {{"instruction", "rdtsc"}});
  }
  if (!fault.known_address) {
    return VerdictWith(VerdictKind::kMemoryFault,
                       "a protection fault: an aligned vector access at an address that is not "
                       "aligned, an address that no memory can have, or a privileged instruction",
                       {{"signal", fault.signal}});
  }
  if (const LaunchBuffer* near = NearestBuffer(fault.address, buffers); near != nullptr) {
    return VerdictNear(fault, *near);
  }
  return VerdictWith(
      VerdictKind::kMemoryFault,
      std::string(fault.write ? "wrote" : "read") + " memory that belongs to none of its buffers",
      {{"access", fault.write ? "write" : "read"}});
}

Verdict VerdictOfLaunch(const Status& launched) {
  if (launched.ok()) return {};
  const Json evidence = {{"error", launched.ToString()}};
  // For changed control words: see Executable::Launch.
  const bool refused = launched.code() == StatusCode::kUnsupported;
  return VerdictWith(refused ? VerdictKind::kRefused : VerdictKind::kLaunchError,
                     launched.message(), evidence);
}

Verdict VerdictOfEnd(const ForkedEnd& end, const LaunchBuffers& buffers, int timeout_ms) {
  switch (end.kind) {
    case ForkedEnd::Kind::kAnswered: {
      const auto ok = JsonBool(end.answer, "ok");
      if (ok.ok() && *ok) return {};
      const auto code = JsonString(end.answer, "code");
      const auto error = JsonString(end.answer, "error");
      const auto parsed = ParseStatusCode(code.ok() ? *code : "");
      if (!error.ok() || !parsed.has_value() || *parsed == StatusCode::kOk) break;
      return VerdictOfLaunch({*parsed, *error});
    }
    case ForkedEnd::Kind::kTimedOut:
      return VerdictWith(VerdictKind::kTimeout,
                         "did not finish within " + std::to_string(timeout_ms) + " ms");
    case ForkedEnd::Kind::kFault:
      return VerdictOfFault(end.fault, buffers);
    case ForkedEnd::Kind::kKilled:
    case ForkedEnd::Kind::kEnded:
      break;
  }
  const Json evidence = {{"signal", end.end.signal}, {"exit_code", end.end.exit_code}};
  if (end.end.signal == SIGSYS) {
    return VerdictWith(VerdictKind::kRefused, "made a system call", evidence);
  }
  if (end.end.signal == SIGSEGV || end.end.signal == SIGBUS) {
    return VerdictWith(VerdictKind::kMemoryFault,
                       "read or wrote where it may not (" + end.end.ToString() + ")", evidence);
  }
  return VerdictWith(VerdictKind::kCrashed,
                     "the process that ran it ended before it answered: " + end.end.ToString(),
                     evidence);
}

}  // namespace cudaforge
