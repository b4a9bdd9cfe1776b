#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "generators/generator.h"
#include "signature/aten_numerics.h"
#include "signature/from_aten_region.h"
#include "signature/op_facts.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

std::optional<std::string> Refusal(const std::string& text, const std::string& arch) {
  py::gil_scoped_release release;
  const Status status = CanGenerate(ParseSignature(text), arch);
  if (status.ok()) return std::nullopt;
  return status.message();
}

void BindProgram(py::module_& m) {
  py::class_<RegionProgram>(m, "RegionProgram")
      .def(py::init([](const std::string& signature) {
             return ValueOrThrow(RegionProgram::Create(ParseSignature(signature)));
           }),
           py::arg("signature"))
      .def(
          "run",
          [](const RegionProgram& program, const std::vector<at::Tensor>& inputs) {
            return program.Run(inputs);
          },
          py::arg("inputs"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void BindSignature(py::module_& m) {
  m.attr("DTYPES") = py::tuple(py::cast(DTypeNames()));
  m.def("anchor_ops", &AnchorOps);
  m.def("pointwise_ops", &PointwiseOps);
  m.def("heavy_ops", &HeavyOps);
  m.def("anchor_words", &FamilyWords);
  m.def("parts_of", &PartsOf, py::arg("op"));
  m.def(
      "norm_operands",
      [](const std::string& op) -> std::optional<std::pair<int, int>> {
        const OpFacts& facts = FactsOf(op);
        if (facts.norm_weight < 0) return std::nullopt;
        return std::pair(facts.backward ? 1 : 0, facts.norm_weight);
      },
      py::arg("op"));
  m.def(
      "generates_heavy_ops", [](const std::string& arch) { return GeneratesHeavyOps(arch); },
      py::arg("arch"));
  m.def("can_generate", &Refusal, py::arg("signature"), py::arg("arch"));

  m.def(
      "numerics",
      [](const std::vector<std::string>& ops) { return ToPython(NumericsInForce(ops)); },
      py::arg("ops"));
  m.def(
      "normalize",
      [](const std::string& text) {
        return ValueOrThrow(NormalizeAten(ParseSignature(text))).Canonical();
      },
      py::arg("signature"));
  m.def(
      "signature_key", [](const std::string& text) { return ParseSignature(text).Key(); },
      py::arg("signature"));
  m.def(
      "describe", [](const std::string& text) { return ParseSignature(text).Describe(); },
      py::arg("signature"));
  m.def("region_id", &RegionId, py::arg("key"));
  BindProgram(m);
}

}  // namespace cudaforge::binding
