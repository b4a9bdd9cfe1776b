// Fills prompts with the values of a session's state.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "forge/agent/strategy.h"
#include "forge/prompts.h"
#include "forge/trial.h"
#include "kernel/candidate.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

class AgentPrompts {
 public:
  struct Task {
    const OpSignature* signature = nullptr;
    std::string arch;      // DeviceArch::target
    Json device;           // CandidateRunner::Facts, or what is known without a worker
    Json floor;            // the part of DerivedFacts that holds for any kernel; null: unknown
    std::string rival;     // "inductor, 12.4 us"; empty: unknown
    bool metrics = true;   // false: leaves out resources, profile and derived facts
    size_t max_documents;  // bytes of knowledge in one prompt
    std::string language;  // "triton"; empty: the device's language
  };
  explicit AgentPrompts(Task task);
  void SetRival(std::string rival) { task_.rival = std::move(rival); }

  // `nodes`: of the session so far. They include step.parent, if the step has one.
  Result<Prompt> ForCoder(const Step& step, const std::vector<Trial>& nodes,
                          const std::optional<Advice>& advice,
                          const std::vector<std::string>& hints) const;
  // REQUIRES: step.parent has a candidate.
  Result<Prompt> ForJudge(const Step& step, const std::vector<Trial>& nodes,
                          const std::vector<std::string>& hints) const;

 private:
  Json Values(const Step& step, const std::vector<Trial>& nodes,
              const std::vector<std::string>& hints) const;
  Result<Prompt> Render(const std::string& name, const Json& values, const Trial* parent) const;

  Task task_;
  const std::string language_;
  const std::string region_;
  const std::string region_kind_;
};

// Repeats the request to a Judge: the first prompt, its reply, and what is wrong with it.
Result<Prompt> JudgeAgain(const Prompt& first, const std::string& fault, const std::string& reply);

}  // namespace cudaforge
