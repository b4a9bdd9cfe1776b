// The forge of one region as a service: search by generators and agents, the race, the record. Any
// C++ program can use it; what only the program around it knows is a ForgeHost.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/cancel.h"
#include "base/json.h"
#include "base/status.h"
#include "cache/kernel_store.h"
#include "cache/record.h"
#include "forge/agent/agents.h"
#include "forge/forge.h"
#include "measure/paired.h"
#include "signature/op_signature.h"
#include "verify/evaluator.h"

namespace cudaforge {

// What a machine gives to every forge.
struct Workshop {
  std::shared_ptr<KernelStore> store;
  Json versions;                 // as CacheRecord has them
  OpenEvaluator open = nullptr;  // Verifiers::Open
  // Begins to compile what an evaluator will be asked about (Verifiers::CompileAhead); nullptr:
  // nobody does.
  std::function<void(const Candidate&, const DeviceArch&)> compile_ahead = nullptr;
};

// The program around a forge. Called from the forging thread alone. What it throws ends the forging
// and passes through.
class ForgeHost {
 public:
  // While one lives, the contestant "winner" runs its kernel.
  class OnTrial {
   public:
    virtual ~OnTrial() = default;
    // From now on the kernel serves the program as `record` says. The store may have kept a better
    // record instead.
    virtual void Serve(const CacheRecord& record) = 0;
  };
  // The region by Inductor.
  struct Inductor {
    // None: Inductor cannot compile the region, or `in_time` is false.
    std::optional<Contestant> contestant;
    bool in_time = true;  // false: compiling it would have taken more than what was left
    double waited_s = 0;  // for other compilations, which is no time of the region's
  };

  virtual ~ForgeHost() = default;
  virtual void Tell(const Json& event) = 0;
  // Before each step: throws where the forging is to end.
  virtual void GoOn() {}
  virtual Result<std::unique_ptr<OnTrial>> Try(const ProvenKernel& kernel) = 0;
  // While one lives, no other forge of the same graph judges or races on the device.
  class Turn {
   public:
    virtual ~Turn() = default;
  };
  // Waits for it; a race goes before searches. nullptr: forges need not take turns. `left_s` is
  // made smaller where less than that is left for the region now.
  virtual std::unique_ptr<Turn> TakeTurn(bool race, double* left_s) {
    static_cast<void>(race), static_cast<void>(left_s);
    return nullptr;
  }
  // From now on contestants of `region` run on that many sets of inputs, by turns; 0: on none.
  virtual Status MakeInputs(const OpSignature& region, int sets) = 0;
  virtual Contestant Winner(const OpSignature& region) = 0;
  virtual Contestant Aten(const OpSignature& region) = 0;
  // `part`: the key of that part of it which the kernel on trial computes; empty: none. `left_s`:
  // of the region's budget.
  virtual Inductor ByInductor(const OpSignature& region, const std::string& part,
                              double left_s) = 0;
  virtual SampleClock Clock() = 0;
  // Whether the program itself keeps the processor busy now. Makes times doubtful.
  virtual bool ProgramIsBusy() { return false; }
  // Whether other programs took the processor since Clock(). Makes times doubtful. Of a race on a
  // GPU see PairedTimes::Interrupted.
  virtual bool RaceWasDisturbed() { return false; }
};

struct RegionRequest {
  Task task;
  int device_index = 0;
  // Bounds the whole: search, Inductor's compilation and races. A step is not begun if it is
  // expected to end later, by what the same step took before. Agents have limits of their own.
  double budget_s = 60;
  std::optional<double> search_s;  // of budget_s, for the generators; unset: SearchSeconds
  int candidates = 64;             // of the generators, at most
  // The larger region that this is a part of: it must win inside it too.
  std::optional<OpSignature> within;
  // Who writes kernels after the generators; nullptr: nobody. Its start, rival and earlier trials
  // are filled in here. `resume`: a session that was cut off goes on.
  AgentSettings* agents = nullptr;
  bool resume = true;
  Cancel* cancel = nullptr;  // ends a search soon; nullptr: never
};

// How many sets of inputs the rounds of a race of the region take by turns.
int RaceInputSets(const OpSignature& region);

// What is left of a region's budget without Inductor's compilation and the races.
double SearchSeconds(double budget_s);

struct Forged {
  std::optional<CacheRecord> record;
  bool stored = false;  // it is the one that the store has now
  // Seconds by phase: "start" (of the verifier), "inputs", "compile", "run" and "compare" of
  // candidates, "rival" (Inductor compiles), "race".
  std::map<std::string, double> spent;
  std::string no_reply;  // without a record: why no reply of the agents had a candidate
};

// Makes the record of a region and stores it. One thread, and for one key one at a time.
//
// Progress: as SearchWalks and RunAgents tell it, and {"event":"stage","stage":"rivals"},
// "compile", "race", the latter two with "within": a key, where it is done in that larger region.
//
// Errors: kUnsupported where no generator makes the region and there are no agents; what this
// machine lacks.
Result<Forged> ForgeRegion(const RegionRequest& request, const Workshop& workshop, ForgeHost& host);

}  // namespace cudaforge
