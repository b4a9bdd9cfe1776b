#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "binding/errors.h"
#include "binding/json_py.h"
#include "binding/module.h"
#include "binding/signature_py.h"
#include "generators/generator.h"
#include "measure/roofline.h"
#include "signature/aten_numerics.h"
#include "signature/from_aten_region.h"
#include "signature/op_facts.h"
#include "signature/roles.h"

namespace cudaforge::binding {
namespace {

namespace py = pybind11;

std::optional<std::string> WhyNotGenerated(const Signature& signature, const std::string& arch) {
  py::gil_scoped_release release;
  const Status status = CanGenerate(signature, arch);
  if (status.ok()) return std::nullopt;
  return status.message();
}

std::shared_ptr<Signature> Parse(const std::string& text) {
  return std::make_shared<Signature>(ValueOrThrow(OpSignature::Parse(text)));
}

py::tuple Ops(const Signature& signature) {
  py::list ops;
  for (const Node& node : signature.nodes) ops.append(node.op);
  return py::tuple(ops);
}

py::tuple Inputs(const Signature& signature) {
  py::list inputs;
  for (const TensorSpec& spec : signature.inputs) {
    inputs.append(py::make_tuple(DTypeName(spec.dtype), py::tuple(py::cast(spec.sizes)),
                                 py::tuple(py::cast(spec.strides))));
  }
  return py::tuple(inputs);
}

py::tuple Bytes(const Signature& signature) {
  int64_t inputs = 0, outputs = 0;
  for (const TensorSpec& spec : signature.inputs) inputs += spec.StorageBytes();
  for (size_t o = 0; o < signature.outputs.size(); ++o) {
    outputs += signature.output_spec(o).StorageBytes();
  }
  return py::make_tuple(inputs, outputs);
}

// For each input its valid values, and the limit of an index or label.
py::list InputRoles(const Signature& signature) {
  const Result<std::vector<InputRole>> roles = FindRoles(signature);
  py::list kinds;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const InputRole role = roles.ok() ? (*roles)[i] : InputRole();
    const char* kind = "value";
    if (role.kind == OperandRole::kIndex || role.kind == OperandRole::kTarget) kind = "index";
    if (role.kind == OperandRole::kPositive) kind = "positive";
    if (role.kind == OperandRole::kProbability) kind = "probability";
    if (role.kind == OperandRole::kLogProbability) kind = "log_probability";
    if (role.kind == OperandRole::kTanh) kind = "tanh";
    kinds.append(py::make_tuple(kind, role.limit));
  }
  return kinds;
}

void BindClass(py::module_& m) {
  py::class_<Signature, std::shared_ptr<Signature>>(m, "Signature")
      .def_static("parse", &Parse, py::arg("text"))
      .def("normalized",
           [](const Signature& signature) {
             return std::make_shared<Signature>(ValueOrThrow(NormalizeAten(signature)));
           })
      .def_readonly("text", &Signature::text)
      .def_readonly("key", &Signature::key)
      .def_property_readonly(
          "device", [](const Signature& signature) { return DeviceTypeName(signature.device); })
      .def_property_readonly("ops", &Ops)
      .def_property_readonly("inputs", &Inputs)
      .def_property_readonly("bytes", &Bytes)
      .def_property_readonly("input_roles", &InputRoles)
      .def("describe", [](const Signature& signature) { return signature.Describe(); })
      .def("to_dict", [](const Signature& signature) { return ToPython(signature.ToJson()); })
      .def(
          "floor_us",
          [](const Signature& signature, const py::dict& facts) {
            return FloorUs(signature, FromPython(facts));
          },
          py::arg("facts"))
      .def("why_not_generated", &WhyNotGenerated, py::arg("arch"))
      .def("__repr__",
           [](const Signature& signature) {
             return "<Signature " + signature.key.substr(0, 12) + " " + signature.Describe() + ">";
           })
      .def(
          "__eq__", [](const Signature& a, const Signature& b) { return a.key == b.key; },
          py::is_operator())
      .def("__hash__", [](const Signature& signature) { return RegionId(signature.key); })
      .def(py::pickle([](const Signature& signature) { return py::str(signature.text); },
                      [](const py::str& text) { return Parse(text); }));
}

void BindProgram(py::module_& m) {
  py::class_<RegionProgram>(m, "RegionProgram")
      .def(py::init([](const Signature& signature) {
             return ValueOrThrow(RegionProgram::Create(signature));
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
  BindClass(m);
  BindProgram(m);
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
  m.def("region_op", &RegionOpName, py::arg("op"));
  m.def(
      "generates_heavy_ops", [](const std::string& arch) { return GeneratesHeavyOps(arch); },
      py::arg("arch"));
  m.def("region_id", &RegionId, py::arg("key"));
  m.def(
      "numerics",
      [](const std::vector<std::string>& ops) { return ToPython(NumericsInForce(ops)); },
      py::arg("ops"));
}

}  // namespace cudaforge::binding
