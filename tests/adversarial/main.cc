// Proves every candidate of tests/adversarial and compares the verdicts with those that it may get.
// Torch-free: the verifier is a process of its own. See README.md and run.sh.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "kernel/verdict.h"
#include "target/cpu/cpu_compiler.h"
#include "target/cuda/nvrtc_compiler.h"
#include "target/cuda/search_paths.h"
#include "tests/adversarial/cases.h"
#include "verify/verifiers.h"

namespace cudaforge {
namespace {

constexpr int kRunTimeoutMs = 4000;
constexpr const char* kError = "error";  // in place of a verdict: the verifier gave none

struct Options {
  std::string folder, programs, torch, cxx, json, only;
  DeviceType device = DeviceType::kCpu;
  int seeds = 1, jobs = 1;
  bool compile = false;
};

// What became of one text with one seed.
struct Outcome {
  std::string verdict;
  std::string message;
  Json evidence = Json::object();
  double seconds = 0;
};

// What became of one case with all seeds.
struct Summary {
  const Case* of = nullptr;
  std::vector<std::string> runs;
  Outcome shown;     // of the first seed that was not as it should be, else of the last
  std::string twin;  // likewise
  double seconds = 0;
  bool ok = true;

  void Add(const Outcome& hostile, const Outcome* twin_outcome) {
    runs.push_back(hostile.verdict);
    seconds += hostile.seconds + (twin_outcome != nullptr ? twin_outcome->seconds : 0);
    const bool allowed =
        std::find(of->verdicts.begin(), of->verdicts.end(), hostile.verdict) != of->verdicts.end();
    const bool twin_right = twin_outcome == nullptr || twin_outcome->verdict == "accepted";
    if (!ok) return;
    ok = allowed && twin_right;
    shown = hostile;
    if (twin_outcome == nullptr) return;
    twin = twin_outcome->verdict;
    if (!allowed || twin_right) return;
    shown.message = "twin: " + twin_outcome->message;
    shown.evidence = twin_outcome->evidence;
  }
};

// The cases of one region with one seed: what one opened region proves, one after the other.
struct Unit {
  const NamedRegion* region;
  std::vector<Summary*> cases;
};

class Prover {
 public:
  Prover(Verifiers& verifiers, const Unit& unit) : verifiers_(verifiers), unit_(unit) {}

  Outcome Prove(const Candidate& candidate) {
    const std::string text = candidate.ToJson().dump();
    const auto known = known_.find(text);  // twins are often one text
    if (known != known_.end()) return known->second;
    const double began = SteadySeconds();
    Outcome outcome = Ask(candidate);
    outcome.seconds = SteadySeconds() - began;
    Outcome& kept = known_[text] = outcome;
    kept.seconds = 0;
    return outcome;
  }

 private:
  Outcome Ask(const Candidate& candidate) {
    if (evaluator_ == nullptr) {
      auto opened = verifiers_.Open(unit_.region->signature, 0,
                                    std::numeric_limits<double>::infinity(), nullptr);
      if (!opened.ok()) return {kError, "open: " + opened.status().ToString()};
      evaluator_ = *std::move(opened);
    }
    EvaluatorSettings settings;
    settings.run_timeout_ms = kRunTimeoutMs;
    const Result<Evaluation> found = ProveCandidate(*evaluator_, candidate, settings);
    if (!found.ok()) {
      evaluator_.reset();  // the next candidate gets another process
      return {kError, found.status().ToString()};
    }
    const Verdict& verdict = found->findings.verdict;
    return {std::string(VerdictName(verdict.kind)), verdict.message, LenientCopy(verdict.evidence)};
  }

  Verifiers& verifiers_;
  const Unit& unit_;
  std::unique_ptr<Evaluator> evaluator_;
  std::map<std::string, Outcome> known_;
};

std::string Joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : "|") + word;
  return all;
}

void Print(const Summary& one, bool is_twin_shown) {
  std::string verdict = Joined(one.runs);
  if (std::all_of(one.runs.begin(), one.runs.end(), [&](auto& run) { return run == one.runs[0]; }))
    verdict = one.runs[0];
  if (is_twin_shown && one.twin != "accepted") verdict += " (twin " + one.twin + ")";
  std::printf("%-4s %-42s %-14s %-9s %-28s %6.1f\n", one.ok ? "ok" : "FAIL", one.of->name.c_str(),
              one.of->kind.c_str(), one.of->is_control() ? "accepted" : "refused", verdict.c_str(),
              one.seconds);
  std::fflush(stdout);
}

Json ToJson(const Summary& one, DeviceType device) {
  return {{"name", one.of->name},
          {"class", one.of->kind},
          {"target", DeviceTypeName(device)},
          {"region", one.of->region},
          {"expected", one.of->is_control() ? "accepted" : "refused"},
          {"verdicts", one.of->verdicts},
          {"verdict", one.shown.verdict},
          {"twin", one.of->is_control() ? Json() : Json(one.twin)},
          {"message", one.shown.message},
          {"evidence", one.shown.evidence},
          {"runs", one.runs},
          {"seconds", one.seconds},
          {"ok", one.ok}};
}

// Compiles all texts. Those of controls and twins must compile, hostile ones too unless they may be
// refused as text.
int CompileAll(const Options& options, const std::vector<Case>& cases) {
  std::optional<NvrtcCompiler> nvrtc;
  if (options.device == DeviceType::kCuda) {
    auto made = NvrtcCompiler::Create(CudaRoots({}));
    if (!made.ok()) return std::fprintf(stderr, "%s\n", made.status().ToString().c_str()), 2;
    nvrtc = *std::move(made);
  }
  std::map<std::string, CompileResult> known;
  std::atomic<int> failed = 0;
  const auto compile = [&](const Case& one, const Candidate& candidate, const char* which) {
    const std::string& code = candidate.source.code;
    const auto [found, fresh] = known.try_emplace(code);
    CompileResult& result = found->second;
    if (fresh) {
      result = nvrtc.has_value() ? nvrtc->Compile(code, "sm_90a")
                                 : CompileCpu(code, options.cxx, 60'000);
    }
    const bool may_fail =
        std::string_view(which) == "hostile" &&
        std::find(one.verdicts.begin(), one.verdicts.end(), "compile_error") != one.verdicts.end();
    const bool stated =
        result.log.starts_with("refused") || one.kind == "text" || one.kind == "liveness";
    const bool ok = result.ok || (may_fail && stated);
    if (ok && result.ok && !may_fail) return;
    std::printf("%-4s %-42s %-8s %s\n", ok ? "ok" : "FAIL", one.name.c_str(), which,
                result.ok ? "compiles" : result.log.substr(0, 600).c_str());
    failed += ok ? 0 : 1;
  };
  for (const Case& one : cases) {
    compile(one, one.hostile, one.is_control() ? "control" : "hostile");
    if (!one.is_control()) compile(one, one.twin, "twin");
  }
  std::printf("%zu cases, %zu texts, %d faults\n", cases.size(), known.size(), failed.load());
  return failed == 0 ? 0 : 1;
}

int ProveAll(const Options& options, const std::map<std::string, NamedRegion>& regions,
             const std::vector<Case>& cases) {
  VerifierOptions paths;
  paths.executable = options.programs + "/cudaforge-verifier";
  paths.worker = options.programs + "/cudaforge-worker";
  paths.library_path = options.torch;
  paths.cxx = options.cxx;
  paths.cuda_search_paths = CudaRoots({});
  std::vector<Summary> summaries(cases.size());
  std::vector<Unit> units;
  // Those that change a processor's modes come last: a verifier that does not notice goes on so.
  std::map<std::pair<bool, std::string>, std::vector<Summary*>> by_region;
  for (size_t i = 0; i < cases.size(); ++i) {
    summaries[i].of = &cases[i];
    by_region[{cases[i].kind == "modes", cases[i].region}].push_back(&summaries[i]);
  }
  for (int seed = 0; seed < options.seeds; ++seed) {
    for (const auto& [name, of_region] : by_region) {
      units.push_back({&regions.at(name.second), of_region});
    }
  }
  // The longest first, so that no thread is left with one at the end.
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) {
    const bool a_modes = a.cases[0]->of->kind == "modes", b_modes = b.cases[0]->of->kind == "modes";
    return a_modes != b_modes ? b_modes : a.cases.size() > b.cases.size();
  });
  std::printf("%-4s %-42s %-14s %-9s %-28s %6s\n", "", "name", "class", "expected", "verdict", "s");
  const double began = SteadySeconds();
  std::mutex mutex;  // guards the summaries and the output
  std::atomic<size_t> next = 0;
  Verifiers verifiers(paths);
  const auto work = [&] {
    for (size_t u = next++; u < units.size(); u = next++) {
      Prover prover(verifiers, units[u]);
      for (Summary* one : units[u].cases) {
        const Outcome hostile = prover.Prove(one->of->hostile);
        std::optional<Outcome> twin;
        if (!one->of->is_control()) twin = prover.Prove(one->of->twin);
        const std::lock_guard lock(mutex);
        one->Add(hostile, twin.has_value() ? &*twin : nullptr);
        if (one->runs.size() == static_cast<size_t>(options.seeds)) {
          Print(*one, !one->of->is_control());
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < options.jobs; ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();

  Json list = Json::array();
  size_t hostile = 0, wrong_hostile = 0, wrong_controls = 0;
  for (const Summary& one : summaries) {
    hostile += one.of->is_control() ? 0 : 1;
    if (!one.ok) (one.of->is_control() ? wrong_controls : wrong_hostile) += 1;
    if (!one.ok) {
      std::printf("\n%s: %s, expected %s\n  %s\n  %s\n", one.of->name.c_str(),
                  Joined(one.runs).c_str(), Joined(one.of->verdicts).c_str(),
                  one.shown.message.c_str(),
                  LenientText(one.shown.evidence).substr(0, 600).c_str());
    }
    list.push_back(ToJson(one, options.device));
  }
  std::printf(
      "\n%zu hostile kernels, %zu not as expected; %zu controls, %zu refused; %d seeds, %.0f s\n",
      hostile, wrong_hostile, summaries.size() - hostile, wrong_controls, options.seeds,
      SteadySeconds() - began);
  if (!options.json.empty()) {
    const Status written =
        WriteFileAtomic(options.json, LenientCopy({{"cases", std::move(list)}}).dump(1) + "\n");
    if (!written.ok()) return std::fprintf(stderr, "%s\n", written.ToString().c_str()), 2;
  }
  return wrong_hostile + wrong_controls == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  const auto fail = [](const std::string& what) {
    std::fprintf(stderr, "adversarial: %s\n", what.c_str());
    return 2;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--compile") {
      options.compile = true;
      continue;
    }
    if (i + 1 == argc) return fail(word + " needs a value; see run.sh --help");
    const std::string value = argv[++i];
    const std::map<std::string, std::string*> texts = {
        {"--folder", &options.folder}, {"--programs", &options.programs},
        {"--torch", &options.torch},   {"--cxx", &options.cxx},
        {"--json", &options.json},     {"--only", &options.only}};
    if (texts.contains(word)) {
      *texts.at(word) = value;
    } else if (word == "--target") {
      const auto device = ParseDeviceType(value);
      if (!device.ok()) return fail("--target is cpu or cuda");
      options.device = *device;
    } else if (word == "--seeds" || word == "--jobs") {
      const int number = static_cast<int>(std::strtol(value.c_str(), nullptr, 10));
      if (number < 1) return fail(word + " is a number from 1");
      (word == "--seeds" ? options.seeds : options.jobs) = number;
    } else {
      return fail("unknown option " + word + "; see run.sh --help");
    }
  }
  const auto regions = ReadRegions(options.folder, options.device);
  if (!regions.ok()) return fail(regions.status().ToString());
  auto cases = ReadCases(options.folder, options.device, *regions);
  if (!cases.ok()) return fail(cases.status().ToString());
  std::erase_if(*cases, [&](const Case& one) {
    return one.name.find(options.only) == std::string::npos && one.kind != options.only;
  });
  if (cases->empty()) return fail("no case is called " + options.only);
  return options.compile ? CompileAll(options, *cases) : ProveAll(options, *regions, *cases);
}

}  // namespace
}  // namespace cudaforge

int main(int argc, char** argv) { return cudaforge::Main(argc, argv); }
