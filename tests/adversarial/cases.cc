#include "tests/adversarial/cases.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/file.h"
#include "kernel/verdict.h"

namespace cudaforge {
namespace {

using Lines = std::vector<std::string>;

Lines LinesOf(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Lines WordsOf(const std::string& text) {
  Lines words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// ["float32", [8, 128]], with strides and an alignment in bytes behind it where they are not those
// of a contiguous tensor at any address.
Result<TensorSpec> SpecFrom(const Json& json) {
  if (!json.is_array() || json.size() < 2)
    return Status::InvalidArgument("no tensor: " + json.dump());
  TensorSpec spec;
  CF_ASSIGN_OR_RETURN(spec.dtype, ParseDType(json[0].get<std::string>()));
  spec.sizes = json[1].get<std::vector<int64_t>>();
  spec.strides =
      json.size() > 2 ? json[2].get<std::vector<int64_t>>() : ContiguousStrides(spec.sizes);
  spec.alignment = json.size() > 3 ? json[3].get<int64_t>() : DTypeSize(spec.dtype);
  return spec;
}

Result<NamedRegion> RegionFrom(const Json& json, DeviceType device) {
  NamedRegion region;
  OpSignature& signature = region.signature;
  signature.device = device;
  for (const Json& input : json.at("inputs")) {
    CF_ASSIGN_OR_RETURN(TensorSpec spec, SpecFrom(input));
    signature.inputs.push_back(std::move(spec));
  }
  for (const Json& node : json.at("nodes")) {
    Node made{node.at("op"), node.at("args"), node.value("kwargs", Json::object()), {}};
    for (const Json& output : node.at("outputs")) {
      CF_ASSIGN_OR_RETURN(TensorSpec spec, SpecFrom(output));
      made.outputs.push_back(std::move(spec));
    }
    signature.nodes.push_back(std::move(made));
  }
  const int last = static_cast<int>(signature.nodes.size()) - 1;
  const int outputs = json.value("outputs", 1);
  for (int out = 0; out < outputs; ++out) signature.outputs.push_back({last, out});
  CF_ASSIGN_OR_RETURN(signature, OpSignature::Parse(signature.Canonical()));
  region.items = json.value("items", std::string("in0.size0"));
  const std::vector<int64_t>& sizes = signature.inputs[0].sizes;
  region.prelude = "[[maybe_unused]] constexpr long kRows = " + std::to_string(sizes.front()) +
                   ", kCols = " + std::to_string(sizes.back()) + ";\n";
  return region;
}

// The text with or without the trigger: of "#ifdef TRIGGER ... #else ... #endif", each at the
// beginning of its line, one part, so that a look at words sees only that part.
std::string Part(const Lines& lines, bool trigger) {
  enum { kBoth, kTrigger, kTwin } part = kBoth;
  std::string text;
  for (const std::string& line : lines) {
    if (line == "#ifdef TRIGGER") {
      part = kTrigger;
    } else if (part != kBoth && line == "#else") {
      part = kTwin;
    } else if (part != kBoth && line == "#endif") {
      part = kBoth;
    } else if (part == kBoth || (part == kTrigger) == trigger) {
      text += line + "\n";
    }
  }
  return text;
}

LaunchArg ArgOf(LaunchArg::Kind kind, size_t index) {
  LaunchArg arg;
  arg.kind = kind;
  arg.index = static_cast<int>(index);
  return arg;
}

class CaseReader {
 public:
  CaseReader(DeviceType device, const std::map<std::string, NamedRegion>& regions,
             const std::string& common)
      : device_(device), regions_(regions), common_(common) {}

  // `lines`: "// FIELD: VALUE" lines, then the code.
  Result<Case> Read(const std::string& name, const Lines& lines) {
    Case made;
    made.name = name;
    std::map<std::string, std::string> fields;
    Lines launches;
    size_t at = 0;
    for (; at < lines.size() && lines[at].starts_with("// "); ++at) {
      const size_t colon = lines[at].find(": ");
      if (colon == std::string::npos) continue;
      const std::string field = lines[at].substr(3, colon - 3), value = lines[at].substr(colon + 2);
      if (field == "launch") launches.push_back(value);
      fields[field] = value;
    }
    made.kind = fields["class"];
    made.region = fields["region"];
    made.verdicts = WordsOf(fields["verdicts"]);
    const auto region = regions_.find(made.region);
    if (region == regions_.end()) return Wrong(name, "unknown region '" + made.region + "'");
    if (made.kind.empty() || made.verdicts.empty()) return Wrong(name, "no class or no verdicts");
    for (const std::string& verdict : made.verdicts) {
      const Json json = {{"verdict", verdict}, {"message", ""}, {"evidence", Json::object()}};
      if (!Verdict::FromJson(json).ok()) {
        return Wrong(name, "unknown verdict '" + verdict + "'");
      }
    }
    CF_RETURN_IF_ERROR(MakePlan(region->second, fields, launches, &made.hostile));
    made.twin = made.hostile;
    const Lines code(lines.begin() + static_cast<ptrdiff_t>(at), lines.end());
    const bool has_trigger = std::find(code.begin(), code.end(), "#ifdef TRIGGER") != code.end();
    if (has_trigger == made.is_control()) return Wrong(name, "a trigger is for hostile kernels");
    const bool plain = fields.contains("plain");  // without the helpers
    const std::string head = plain ? "" : common_ + region->second.prelude;
    made.hostile.source.code = head + Part(code, true);
    made.twin.source.code = head + Part(code, false);
    const Status valid = made.twin.Validate(region->second.signature);
    if (!valid.ok()) return Wrong(name, valid.ToString());
    return made;
  }

 private:
  static Status Wrong(const std::string& name, const std::string& what) {
    return Status::InvalidArgument(name + ": " + what);
  }

  // Arguments: inputs, outputs, scratch buffers, ints, floats, in this order, for each launch.
  Status MakePlan(const NamedRegion& region, std::map<std::string, std::string>& fields,
                  Lines launches, Candidate* out) {
    out->source.language = device_ == DeviceType::kCpu ? Language::kCpu : Language::kCuda;
    out->author = AgentAuthor("adversarial");
    std::vector<LaunchArg> args;
    for (size_t i = 0; i < region.signature.inputs.size(); ++i) {
      args.push_back(ArgOf(LaunchArg::Kind::kInput, i));
    }
    for (size_t i = 0; i < region.signature.outputs.size(); ++i) {
      args.push_back(ArgOf(LaunchArg::Kind::kOutput, i));
    }
    for (const std::string& bytes : WordsOf(fields["scratch"])) {  // "4096", "4096z": zeroed
      const bool zeroed = bytes.ends_with('z');
      args.push_back(ArgOf(LaunchArg::Kind::kScratch, out->plan.scratch_bytes.size()));
      out->plan.scratch_bytes.emplace_back(IntExpr(std::stoll(bytes)), zeroed);
    }
    for (const std::string& text : WordsOf(fields["ints"])) {
      LaunchArg arg = ArgOf(LaunchArg::Kind::kInt, 0);
      CF_ASSIGN_OR_RETURN(arg.expr, IntExpr::Parse(text));
      args.push_back(arg);
    }
    for (const std::string& text : WordsOf(fields["floats"])) {
      LaunchArg arg = ArgOf(LaunchArg::Kind::kFloat, 0);
      arg.number = std::stod(text);
      args.push_back(arg);
    }
    if (launches.empty()) launches.push_back("candidate");
    for (const std::string& text : launches) {
      CF_ASSIGN_OR_RETURN(Launch launch, LaunchFrom(text, region));
      launch.args = args;
      out->plan.launches.push_back(std::move(launch));
    }
    return Status::Ok();
  }

  // "NAME", with "range=", "grain=", "grid=", "block=", "shared=" or "cooperative" behind it.
  Result<Launch> LaunchFrom(const std::string& text, const NamedRegion& region) const {
    Launch launch;
    const Lines words = WordsOf(text);
    launch.kernel = words.front();
    IntExpr& items = device_ == DeviceType::kCpu ? launch.range : launch.grid[0];
    CF_ASSIGN_OR_RETURN(items, IntExpr::Parse(region.items));
    launch.block[0] = 256;
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      const std::string key = words[i].substr(0, equals);
      const std::string value = equals == std::string::npos ? "1" : words[i].substr(equals + 1);
      CF_ASSIGN_OR_RETURN(const IntExpr expr, IntExpr::Parse(value));
      if (key == "range" || key == "grid") {
        items = expr;
      } else if (key == "grain") {
        launch.grain = expr;
      } else if (key == "block") {
        launch.block[0] = expr;
      } else if (key == "shared") {
        launch.dynamic_shared_bytes = expr;
      } else if (key == "cooperative") {
        launch.attributes.cooperative = true;
      } else {
        return Status::InvalidArgument("launch: unknown '" + key + "'");
      }
    }
    return launch;
  }

  const DeviceType device_;
  const std::map<std::string, NamedRegion>& regions_;
  const std::string& common_;
};

}  // namespace

Result<std::map<std::string, NamedRegion>> ReadRegions(const std::string& folder,
                                                       DeviceType device) {
  CF_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/regions.json"));
  CF_ASSIGN_OR_RETURN(const Json all, ParseJson(text));
  std::map<std::string, NamedRegion> regions;
  for (const auto& [name, json] : all.items()) {
    Result<NamedRegion> region = RegionFrom(json, device);
    if (!region.ok()) return Status::InvalidArgument(name + ": " + region.status().ToString());
    regions.emplace(name, *std::move(region));
  }
  return regions;
}

Result<std::vector<Case>> ReadCases(const std::string& folder, DeviceType device,
                                    const std::map<std::string, NamedRegion>& regions) {
  const std::string cases = folder + "/" + std::string(DeviceTypeName(device));
  CF_ASSIGN_OR_RETURN(const std::string common, ReadFile(cases + "/common.h.txt"));
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(cases)) {
    if (!entry.path().string().ends_with("common.h.txt")) paths.insert(entry.path().string());
  }
  std::vector<Case> all;
  std::set<std::string> names;
  CaseReader reader(device, regions, common);
  for (const std::string& path : paths) {
    CF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    std::string name;
    Lines lines;
    const auto finish = [&]() -> Status {
      if (name.empty()) return Status::Ok();
      if (!names.insert(name).second) return Status::InvalidArgument(name + " stands twice");
      CF_ASSIGN_OR_RETURN(Case made, reader.Read(name, lines));
      all.push_back(std::move(made));
      lines.clear();
      return Status::Ok();
    };
    for (const std::string& line : LinesOf(text)) {
      if (!line.starts_with("//// ")) {
        lines.push_back(line);
        continue;
      }
      CF_RETURN_IF_ERROR(finish());
      name = line.substr(5);
      lines.clear();
    }
    CF_RETURN_IF_ERROR(finish());
  }
  return all;
}

}  // namespace cudaforge
