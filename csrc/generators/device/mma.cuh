// Products of a warp on tensor cores (mma.sync), 16 rows by 8 columns by 16 of k, for sm_80 and
// later. PTX ISA, "Matrix Fragments for mma.m16n8k16". An address is one of shared memory, as
// __cvta_generic_to_shared gives it, and a multiple of 16.

// Eight halves to shared memory.
__device__ __forceinline__ void StoreHalves(unsigned to, const unsigned short (&x)[8]) {
  const auto pair = [&](int i) { return x[i] | static_cast<unsigned>(x[i + 1]) << 16; };
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pair(0)), "r"(pair(2)),
               "r"(pair(4)), "r"(pair(6))
               : "memory");
}

// d += A B. A lane has of A rows lane / 4 and 8 below at k lane % 4 * 2, then the same at k + 8; of
// B column lane / 4 at these k; of d two columns at lane % 4 * 2 in each of its rows.
template <bool kBFloat16>
__device__ __forceinline__ void MultiplyFragments(float (&d)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  if constexpr (kBFloat16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
