// Forges one region: search by generators and agents, the race, the record. Any C++ program can use
// it. The program around it implements ForgeHost.
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

// What a machine provides to every forge.
struct Workshop {
  std::shared_ptr<KernelStore> store;
  Json versions;                 // as in CacheRecord
  OpenEvaluator open = nullptr;  // Verifiers::Open
  // Starts to compile a candidate before the evaluator gets it (Verifiers::CompileAhead). nullptr:
  // off.
  std::function<void(const Candidate&, const DeviceArch&)> compile_ahead = nullptr;
};

// The program around a forge. Called only from the forging thread. An exception that it throws ends
// the forge and is passed on.
class ForgeHost {
 public:
  // While an object lives, the contestant "winner" runs its kernel.
  class OnTrial {
   public:
    virtual ~OnTrial() = default;
    // Makes the kernel serve the program as `record` says. The store may have kept a better record.
    virtual void Serve(const CacheRecord& record) = 0;
  };
  // The region as compiled by Inductor.
  struct Inductor {
    // Empty: Inductor cannot compile the region, or `in_time` is false.
    std::optional<Contestant> contestant;
    bool in_time = true;  // false: compiling would take more time than was left
    double waited_s = 0;  // for other compilations; not counted against the region's budget
  };

  virtual ~ForgeHost() = default;
  virtual void Tell(const Json& event) = 0;
  // Called before each step. Throws to stop the forge.
  virtual void GoOn() {}
  virtual Result<std::unique_ptr<OnTrial>> Try(const ProvenKernel& kernel) = 0;
  // While an object lives, no other forge of the same graph verifies or races on the device.
  class Turn {
   public:
    virtual ~Turn() = default;
  };
  // Waits for the turn; a race goes before searches. nullptr: no turns are needed. Lowers `left_s`
  // if less time is left for the region now.
  virtual std::unique_ptr<Turn> TakeTurn(bool race, double* left_s) {
    static_cast<void>(race), static_cast<void>(left_s);
    return nullptr;
  }
  // Makes contestants of `region` run on that many sets of inputs, in rotation; 0: frees them.
  virtual Status MakeInputs(const OpSignature& region, int sets) = 0;
  virtual Contestant Winner(const OpSignature& region) = 0;
  virtual Contestant Aten(const OpSignature& region) = 0;
  // `part`: the key of the part of `region` that the kernel on trial computes; empty: none.
  // `left_s`: what is left of the region's budget.
  virtual Inductor ByInductor(const OpSignature& region, const std::string& part,
                              double left_s) = 0;
  virtual SampleClock Clock() = 0;
  // Returns true if the program itself keeps the processor busy now. Makes times doubtful.
  virtual bool ProgramIsBusy() { return false; }
  // Returns true if other programs used the processor since Clock(). Makes times doubtful. For a
  // race on a GPU see PairedTimes::Interrupted.
  virtual bool RaceWasDisturbed() { return false; }
};

struct RegionRequest {
  Task task;
  int device_index = 0;
  // Bounds the whole: search, Inductor's compilation and races. A step that is expected to end
  // later is not begun; the expectation is its last duration. Agents have their own limits.
  double budget_s = 60;
  std::optional<double> search_s;  // of budget_s, for the generators; unset: SearchSeconds
  int candidates = 64;             // of the generators, at most
  // The larger region that this is a part of. The kernel must also win inside it.
  std::optional<OpSignature> within;
  // Agents that write kernels after the generators; nullptr: none. Their start, rival and earlier
  // trials are set here. `resume`: continue an interrupted session.
  AgentSettings* agents = nullptr;
  bool resume = true;
  Cancel* cancel = nullptr;  // stops a search soon; nullptr: never
};

// How many sets of inputs a race of the region rotates through.
int RaceInputSets(const OpSignature& region);

// A region's budget minus the time for Inductor's compilation and the races.
double SearchSeconds(double budget_s);

struct Forged {
  std::optional<CacheRecord> record;
  bool stored = false;  // the record is in the store now
  // Seconds by phase: "start" (of the verifier), "inputs", "compile", "run" and "compare" of
  // candidates, "rival" (Inductor compiles), "race".
  std::map<std::string, double> spent;
  std::string no_reply;  // if there is no record: why no reply of the agents had a candidate
};

// Makes the record of a region and stores it. Call it from one thread, and for each key only one at
// a time. For the progress events see docs/messages.md. Errors: kUnsupported if no generator makes
// the region and there are no agents; what this machine lacks.
Result<Forged> ForgeRegion(const RegionRequest& request, const Workshop& workshop, ForgeHost& host);

}  // namespace cudaforge
