#include "binding/module.h"

#include "binding/errors.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "CudaForge's C++ part.";
  cudaforge::binding::RegisterErrors();
  cudaforge::binding::BindSignature(m);
  cudaforge::binding::BindStore(m);
  cudaforge::binding::BindAgents(m);
  cudaforge::binding::BindDispatch(m);
  cudaforge::binding::BindEager(m);
  cudaforge::binding::BindForge(m);
  cudaforge::binding::BindPacks(m);
  cudaforge::binding::BindMachine(m);
}
