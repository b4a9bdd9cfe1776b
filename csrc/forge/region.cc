#include "forge/region.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "forge/agent/memory.h"
#include "forge/promotion.h"
#include "forge/walk.h"
#include "measure/timing_lease.h"

namespace cudaforge {
namespace {

// The part of a region's budget for Inductor's compilation and the races, and its largest share.
constexpr double kRacingSeconds = 7;
constexpr double kRacingShare = 0.7;
constexpr int kInputSets = 4, kLargeInputSets = 2;
constexpr int64_t kLargeInputs = int64_t{256} << 20;  // bytes
constexpr size_t kAhead = 4;                          // candidates compiled in advance
constexpr double kRaceSeconds = 1;                    // at most, of each race
constexpr double kLeaseSeconds = 5;                   // to wait for others' timings
constexpr int kLeastRounds = 32;              // of a race that a kernel can win (measure/paired.h)
constexpr const char* kBuiltIn = "built-in";  // the rival's name if it is the generators' kernel

// A walk with its first candidates made in advance.
class WalkAhead : public CandidateSearch {
 public:
  WalkAhead(std::unique_ptr<CandidateSearch> walk, std::deque<Candidate> written)
      : walk_(std::move(walk)), written_(std::move(written)) {}
  std::optional<Candidate> Next() override {
    if (written_.empty()) return walk_->Next();
    Candidate next = std::move(written_.front());
    written_.pop_front();
    return next;
  }
  void Tell(size_t nth, const SearchFeedback& feedback) override { walk_->Tell(nth, feedback); }

 private:
  const std::unique_ptr<CandidateSearch> walk_;
  std::deque<Candidate> written_;
};

class RegionForge {
 public:
  RegionForge(const RegionRequest& request, const Workshop& workshop, ForgeHost& host)
      : request_(request),
        region_(request.task.region),
        key_(region_.Key()),
        arch_(request.task.arch.target),
        workshop_(workshop),
        host_(host) {}

  Result<Forged> Run() {
    CF_ASSIGN_OR_RETURN(const std::optional<Forged> again, ForgeAgain());
    if (again.has_value()) return *again;
    std::optional<SearchOutcome> found;
    Result<std::vector<Walk>> walks = WalksFor(request_.task);
    if (walks.ok() || request_.agents == nullptr) {
      CF_RETURN_IF_ERROR(walks.status());
      CF_ASSIGN_OR_RETURN(found, Generate(*std::move(walks)));
    }
    if (request_.agents != nullptr) {
      CF_ASSIGN_OR_RETURN(AgentOutcome asked, AskAgents(found));
      host_.GoOn();
      const bool tried = asked.answered && (asked.has_candidate || found.has_value());
      if (!tried && !asked.search.best.has_value()) {
        Forged none;
        none.no_reply = asked.search.reason;
        return none;
      }
      found = std::move(asked.search);
      stored_by_node_ = true;
    }
    CF_ASSIGN_OR_RETURN(const std::optional<Forged> done, RaceAndConclude(*found, true));
    return *done;
  }

 private:
  double Seconds() const { return SteadySeconds() - start_; }
  double Left() const { return budget_s_ - (Seconds() - agents_s_ - waited_s_); }
  // Returns true if a step of this length would end after the budget.
  bool NoTimeFor(double seconds) const { return !unbounded_ && Left() <= seconds; }
  void LookAtProgram() { was_busy_ = was_busy_ || host_.ProgramIsBusy(); }
  void TellStage(const char* stage, const std::string& within = "") {
    Json event = {{"event", "stage"}, {"stage", stage}};
    if (!within.empty()) event["within"] = within;
    host_.Tell(event);
  }
  ForgeProgress Teller() {
    return [this](const Json& event) { host_.Tell(event); };
  }

  // Waits for the device. This time does not count against the region's budget.
  std::unique_ptr<ForgeHost::Turn> TakeTurn(bool race) {
    const double began = SteadySeconds();
    const double most = Left();
    double left = most;
    std::unique_ptr<ForgeHost::Turn> turn = host_.TakeTurn(race, &left);
    if (turn == nullptr) return turn;
    start_ += SteadySeconds() - began;
    budget_s_ -= most - left;
    return turn;
  }

  // Opens the evaluator, once.
  Status Prepare() {
    if (evaluator_ != nullptr || !unjudgeable_.ok()) return unjudgeable_;
    turn_ = TakeTurn(/*race=*/false);
    const double seconds = unbounded_ ? std::numeric_limits<double>::infinity() : Left();
    const double began = Seconds();
    auto opened = workshop_.open(region_, request_.device_index, seconds, request_.cancel);
    const Status status = opened.status();
    if (status.ok()) {
      evaluator_ = *std::move(opened);
    } else {
      turn_.reset();
    }
    spent_["start"] += Seconds() - began - (status.ok() ? evaluator_->spent().inputs : 0);
    const StatusCode code = status.code();
    if (code == StatusCode::kUnsupported || code == StatusCode::kTimeout) unjudgeable_ = status;
    return status;
  }

  void CloseEvaluator() {
    if (evaluator_ == nullptr) return;
    const PhaseSeconds& spent = evaluator_->spent();
    spent_["inputs"] += spent.inputs;
    spent_["compile"] += spent.compile;
    spent_["run"] += spent.run;
    spent_["compare"] += spent.compare;
    evaluator_.reset();
    turn_.reset();
  }

  // Races the best kernel, and stores the record. Returns nothing if it serves nothing and
  // `conclude` is false.
  Result<std::optional<Forged>> RaceAndConclude(const SearchOutcome& found, bool conclude) {
    if (!found.best.has_value()) {
      CF_ASSIGN_OR_RETURN(Forged none, Conclude(found, nullptr));
      return std::optional(std::move(none));
    }
    CloseEvaluator();  // its memory is needed for the race
    CF_ASSIGN_OR_RETURN(const auto trial, host_.Try(*found.best));
    LookAtProgram();
    CF_ASSIGN_OR_RETURN(const std::optional<Promotion> promotion, RaceAll());
    LookAtProgram();
    if (!conclude && !(promotion.has_value() && promotion->serves())) {
      return std::optional<Forged>();
    }
    CF_ASSIGN_OR_RETURN(Forged done, Conclude(found, promotion ? &*promotion : nullptr));
    const bool won = promotion.has_value() && promotion->promoted;
    if (won || (done.stored && done.record->has_kernel())) trial->Serve(*done.record);
    return std::optional(std::move(done));
  }

  // Tries the stored kernel from another torch, verifier or device: verifies and races it here.
  // Returns nothing if there is none, or it does not win.
  Result<std::optional<Forged>> ForgeAgain() {
    const std::optional<Forged> none;
    const std::shared_ptr<const CacheRecord> record = workshop_.store->Get(key_, arch_);
    const Variant* kernel = record != nullptr ? record->For() : nullptr;
    if (request_.agents != nullptr || kernel == nullptr ||
        JudgedAlike(record->versions, workshop_.versions)) {
      return none;
    }
    const Result<Json> json = ParseJson(kernel->candidate);
    const Result<Candidate> candidate = json.ok() ? Candidate::FromJson(*json) : json.status();
    if (!candidate.ok() || !candidate->Validate(region_).ok()) return none;
    if (workshop_.compile_ahead) workshop_.compile_ahead(*candidate, request_.task.arch);
    if (!Prepare().ok()) return none;
    SearchOutcome found;
    Trial trial;
    trial.author = candidate->author;
    trial.candidate = *candidate;
    Result<Evaluation> proof = ProveCandidate(*evaluator_, *candidate, Settings());
    if (proof.status().code() == StatusCode::kCancelled) return proof.status();
    if (!proof.ok() || !proof->kernel.has_value()) return none;
    trial.findings() = proof->findings;
    found.best = std::move(proof->kernel);
    found.trials.push_back(std::move(trial));
    return RaceAndConclude(found, /*conclude=*/false);
  }

  // Settings of an evaluator that the region's budget bounds.
  EvaluatorSettings Settings() const {
    EvaluatorSettings settings;
    const double limit = Left();
    settings.compile_timeout_ms = TimeoutMs(limit, settings.compile_timeout_ms);
    settings.run_timeout_ms = TimeoutMs(limit, settings.run_timeout_ms);
    settings.cancel = request_.cancel;
    return settings;
  }

  // Starts to compile the first candidates during the wait for the device and the drawing of
  // inputs.
  void CompileAhead(std::vector<Walk>* walks) {
    if (!workshop_.compile_ahead) return;
    const size_t each = (kAhead + walks->size() - 1) / walks->size();
    for (Walk& walk : *walks) {
      std::deque<Candidate> written;
      while (written.size() < each) {
        std::optional<Candidate> next = walk.search->Next();
        if (!next.has_value()) break;
        if (next->Validate(region_).ok()) workshop_.compile_ahead(*next, request_.task.arch);
        written.push_back(*std::move(next));
      }
      walk.search = std::make_unique<WalkAhead>(std::move(walk.search), std::move(written));
    }
  }

  Result<SearchOutcome> Generate(std::vector<Walk> walks) {
    CompileAhead(&walks);
    const Status prepared = Prepare();
    if (prepared.code() == StatusCode::kUnsupported || prepared.code() == StatusCode::kTimeout) {
      SearchOutcome none;  // the region cannot be judged, or not in time
      none.reason = prepared.message();
      none.out_of_time = prepared.code() == StatusCode::kTimeout;
      return none;
    }
    CF_RETURN_IF_ERROR(prepared);
    const double seconds = request_.search_s.value_or(SearchSeconds(budget_s_));
    const ForgeBudget budget = {
        .seconds = seconds - Seconds(), .limit = Left(), .candidates = request_.candidates};
    evaluator_->Begin(Settings());
    return SearchWalks(std::move(walks), *evaluator_, budget, Teller());
  }

  // Runs the agents, who start from the generators' best kernel.
  Result<AgentOutcome> AskAgents(const std::optional<SearchOutcome>& made) {
    const double began = Seconds(), waited = waited_s_;
    unbounded_ = true;
    const ProvenKernel* built_in = made && made->best ? &*made->best : nullptr;
    AgentSettings& agents = *request_.agents;
    TellStage("rivals");
    CF_RETURN_IF_ERROR(MeasureRival(built_in, &agents));
    KernelStore& store = *workshop_.store;
    // An interrupted session is found by its region's key, through the wanted list.
    if (store.Get(key_, arch_) == nullptr) {
      const WantedRegion region{key_, arch_, region_.ToJson()};
      (void)store.AddWanted({&region, 1});
    }
    // Only one process may resume a region's session. A concurrent one starts a new session.
    const std::optional<FileLock> alone = LockSessions(store, key_, arch_);
    SessionMemory memory =
        RecallSession(store, region_, arch_, request_.resume && alone.has_value());
    agents.cancel = request_.cancel;
    if (!memory.session.empty()) agents.session = memory.session;
    agents.earlier = std::move(memory.unfinished);
    const Candidate* start = built_in != nullptr ? &built_in->candidate : nullptr;
    agents.start = StartOf(memory, start);
    agents.start_near = NearRegionOf(memory, start);
    agents.start_is_rival = agents.rival == kBuiltIn && start != nullptr &&
                            CandidateDigest(*agents.start) == CandidateDigest(*start);
    CF_RETURN_IF_ERROR(Prepare());
    EvaluatorSettings given;
    given.metrics = agents.metrics;
    given.cancel = request_.cancel;
    evaluator_->Begin(given);
    // A read-only store does not end the session: it only cannot be resumed.
    const NodeSink keep = [&](const Json& node) { (void)store.AddLineage(key_, arch_, {node}); };
    CF_ASSIGN_OR_RETURN(AgentOutcome outcome,
                        RunAgents(request_.task, *evaluator_, agents, keep, Teller()));
    const bool cancelled = request_.cancel != nullptr && request_.cancel->IsSet();
    if (!cancelled) {
      keep(EndNode(agents.session, outcome.search.reason, outcome.ledger.ToJson()));
    }
    agents_s_ = Seconds() - began - (waited_s_ - waited);
    unbounded_ = false;
    return outcome;
  }

  // Sets the rival (ATen, Inductor or the generators' kernel) and its time.
  Status MeasureRival(const ProvenKernel* built_in, AgentSettings* agents) {
    std::vector<Contestant> contestants;
    std::unique_ptr<ForgeHost::OnTrial> trial;
    if (built_in != nullptr) {
      CF_ASSIGN_OR_RETURN(trial, host_.Try(*built_in));
      contestants.push_back(host_.Winner(region_));
      contestants.back().name = kBuiltIn;
    }
    CF_ASSIGN_OR_RETURN(const bool in_time, AddRivals(region_, &contestants));
    CF_CHECK(in_time);
    if (contestants.size() == 1) contestants.push_back(contestants[0]);  // a race needs two
    CF_ASSIGN_OR_RETURN(const std::optional<Promotion> race, RaceThose(region_, contestants));
    CF_CHECK(race.has_value());
    for (size_t i = 0; i < contestants.size(); ++i) {
      const double ns = race->times.MedianNs(i);
      if (i > 0 && ns >= *agents->rival_ns) continue;
      agents->rival = contestants[i].name;
      agents->rival_ns = ns;
    }
    return Status::Ok();
  }

  // Adds ATen and Inductor for the region. Inductor compiles it at most once. Returns false if
  // there is no time.
  Result<bool> AddRivals(const OpSignature& region, std::vector<Contestant>* contestants) {
    contestants->push_back(host_.Aten(region));
    std::optional<ForgeHost::Inductor>* made = region.Key() == key_ ? &by_inductor_ : nullptr;
    ForgeHost::Inductor inductor;
    if (made != nullptr && made->has_value()) {
      inductor = **made;
    } else {
      inductor = AskInductor(region, "");
      if (!inductor.in_time) return false;
      if (made != nullptr) *made = inductor;
    }
    if (inductor.contestant.has_value()) contestants->push_back(*inductor.contestant);
    return true;
  }

  ForgeHost::Inductor AskInductor(const OpSignature& region, const std::string& part) {
    const double left =
        unbounded_ ? std::numeric_limits<double>::infinity() : std::max(0.0, Left());
    const double began = Seconds();
    ForgeHost::Inductor made = host_.ByInductor(region, part, left);
    waited_s_ += made.waited_s;
    spent_["rival"] += Seconds() - began - made.waited_s;
    return made;
  }

  // The race against ATen and Inductor and, if a part wins it, the race inside the larger region.
  // Returns nothing if there is no time for all of it.
  Result<std::optional<Promotion>> RaceAll() {
    host_.GoOn();
    if (NoTimeFor(0)) return std::optional<Promotion>();
    std::vector<Contestant> contestants{host_.Winner(region_)};
    TellStage("compile");
    CF_ASSIGN_OR_RETURN(const bool in_time, AddRivals(region_, &contestants));
    if (!in_time) return std::optional<Promotion>();
    TellStage("race");
    CF_ASSIGN_OR_RETURN(std::optional<Promotion> alone, RaceThose(region_, contestants));
    if (!alone.has_value() || !alone->promoted || !request_.within.has_value()) return alone;
    host_.GoOn();
    if (NoTimeFor(0)) return std::optional<Promotion>();
    CF_ASSIGN_OR_RETURN(const std::optional<Promotion> inside, RaceWithin(*request_.within));
    if (!inside.has_value()) return std::optional<Promotion>();
    return std::optional(PlacedIn(*std::move(alone), request_.within->Key(), *inside));
  }

  // The larger region by Inductor with this part replaced, against ATen and Inductor.
  Result<std::optional<Promotion>> RaceWithin(const OpSignature& whole) {
    TellStage("compile", whole.Key());
    ForgeHost::Inductor replaced = AskInductor(whole, key_);
    if (!replaced.in_time) return std::optional<Promotion>();
    if (!replaced.contestant.has_value()) {
      return Status::Internal("the part is not found in its region");
    }
    replaced.contestant->name = "winner";
    std::vector<Contestant> contestants{*std::move(replaced.contestant)};
    CF_ASSIGN_OR_RETURN(const bool in_time, AddRivals(whole, &contestants));
    if (!in_time) return std::optional<Promotion>();
    TellStage("race", whole.Key());
    return RaceThose(whole, contestants);
  }

  Result<std::optional<Promotion>> RaceThose(const OpSignature& region,
                                             const std::vector<Contestant>& contestants) {
    std::unique_ptr<ForgeHost::Turn> turn;
    if (turn_ == nullptr)
      turn = TakeTurn(/*race=*/true);  // else this region's agents hold the
                                       // turn
    const Stopwatch watch(&spent_["race"]);
    const int sets = RaceInputSets(region);
    CF_RETURN_IF_ERROR(host_.MakeInputs(region, sets));
    const TimingLease lease =
        TimingLease::Take(region.device, request_.device_index, kLeaseSeconds);
    waited_s_ += lease.waited_s();
    was_busy_ = was_busy_ || !lease.alone();
    const SampleClock clock = host_.Clock();
    for (int set = 0; set < sets; ++set) {
      const double began = SteadySeconds();
      for (const Contestant& contestant : contestants) {
        CF_RETURN_IF_ERROR(clock(set, [&] { return contestant.run(set); }).status());
      }
      // The first calls load kernels and autotune Inductor's.
      const double round = SteadySeconds() - began;
      if (set == 1 && NoTimeFor(round * (sets - 2 + kLeastRounds))) {
        CF_RETURN_IF_ERROR(host_.MakeInputs(region, 0));
        return std::optional<Promotion>();
      }
    }
    // A region of one operator can be a whole eager call, which the raced kernel then serves.
    const bool one_call = contestants[0].name == "winner" && region.nodes.size() == 1;
    PairedOptions options;
    options.budget_s = unbounded_ ? kRaceSeconds : std::clamp(Left(), 0.0, kRaceSeconds);
    CF_ASSIGN_OR_RETURN(Promotion promotion, Race(contestants, clock, options, one_call));
    const bool interrupted = region.device == DeviceType::kCuda && promotion.times.Interrupted();
    was_busy_ = host_.RaceWasDisturbed() || interrupted || was_busy_;
    CF_RETURN_IF_ERROR(host_.MakeInputs(region, 0));  // frees the memory before the turn ends
    return std::optional(std::move(promotion));
  }

  Result<Forged> Conclude(const SearchOutcome& outcome, const Promotion* promotion) {
    host_.GoOn();
    const RegionTime time = {budget_s_, Seconds()};
    const bool won = promotion != nullptr && promotion->promoted;
    const bool serves = promotion != nullptr && promotion->serves();
    const DeviceArch& arch = request_.task.arch;
    CloseEvaluator();
    Forged done;
    done.spent = spent_;
    done.record =
        serves ? MakeWinnerRecord(region_, arch, outcome, *promotion, time, workshop_.versions)
               : MakeNegativeRecord(region_, arch, outcome, promotion, time, workshop_.versions);
    // On a busy machine a kernel looks faster than it is. So a kernel that loses there really
    // loses.
    const bool lost = promotion != nullptr && !serves && promotion->speedup.high < 1;
    if (promotion != nullptr && ((was_busy_ && !lost) || promotion->doubtful)) {
      done.record->doubtful = static_cast<int64_t>(std::time(nullptr));
    }
    std::vector<Json> lineage;
    if (!stored_by_node_) {
      for (const Trial& trial : outcome.trials) lineage.push_back(trial.ToJson());
    }
    CF_RETURN_IF_ERROR(workshop_.store->Conclude(*done.record, lineage, &done.stored));
    if (won) CF_RETURN_IF_ERROR(NoteAgentRegion(*workshop_.store, region_, arch_));
    return done;
  }

  const RegionRequest& request_;
  const OpSignature& region_;
  const std::string key_;
  const std::string& arch_;
  const Workshop& workshop_;
  ForgeHost& host_;
  double start_ = SteadySeconds();  // moved forward by waits for the device
  double budget_s_ = request_.budget_s;
  std::unique_ptr<ForgeHost::Turn> turn_;  // held for the evaluator
  std::unique_ptr<Evaluator> evaluator_;
  Status unjudgeable_;                              // why it could not be opened
  std::optional<ForgeHost::Inductor> by_inductor_;  // for the region itself
  std::map<std::string, double> spent_;             // seconds by phase
  double agents_s_ = 0, waited_s_ = 0;              // not counted against the region's budget
  bool unbounded_ = false;                          // the budget stops nothing
  bool was_busy_ = false;
  bool stored_by_node_ = false;  // the store's lineage has the trials already
};

}  // namespace

int RaceInputSets(const OpSignature& region) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : region.inputs) bytes += spec.StorageBytes();
  return bytes > kLargeInputs ? kLargeInputSets : kInputSets;
}

double SearchSeconds(double budget_s) {
  return budget_s - std::min(kRacingSeconds, kRacingShare * budget_s);
}

Result<Forged> ForgeRegion(const RegionRequest& request, const Workshop& workshop,
                           ForgeHost& host) {
  return RegionForge(request, workshop, host).Run();
}

}  // namespace cudaforge
