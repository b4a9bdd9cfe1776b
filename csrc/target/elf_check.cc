#include "target/elf_check.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/text.h"

namespace cudaforge {
namespace {

// Returns true if [offset, offset + size) is inside `total`, without overflow.
bool Inside(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

template <typename Entry>
bool ReadEntry(std::string_view image, uint64_t table, uint64_t index, Entry& entry) {
  const uint64_t offset = table + index * sizeof(Entry);
  if (!Inside(offset, sizeof(Entry), image.size())) return false;
  std::memcpy(&entry, image.data() + offset, sizeof(Entry));
  return true;
}

struct Section {
  std::string name;
  Elf64_Shdr header;
};

struct Symbol {
  std::string name;
  uint16_t section;
  unsigned char type;
};

// The text at `at` in a string table; "" if there is none.
std::string TextAt(std::string_view table, uint64_t at) {
  if (at >= table.size()) return "";
  const std::string_view rest = table.substr(at);
  return std::string(rest.substr(0, rest.find('\0')));
}

// REQUIRES: CheckElfBounds(image) is ok.
class ElfReader {
 public:
  explicit ElfReader(std::string_view image) : image_(image) {
    Elf64_Ehdr header;
    std::memcpy(&header, image.data(), sizeof(header));
    std::vector<Elf64_Shdr> headers(header.e_shnum);
    for (uint64_t i = 0; i < headers.size(); ++i) ReadEntry(image, header.e_shoff, i, headers[i]);
    const std::string_view names =
        header.e_shstrndx < headers.size() ? Bytes(headers[header.e_shstrndx]) : "";
    for (const Elf64_Shdr& one : headers) sections_.push_back({TextAt(names, one.sh_name), one});
    segments_.resize(header.e_phnum);
    for (uint64_t i = 0; i < segments_.size(); ++i) {
      ReadEntry(image, header.e_phoff, i, segments_[i]);
    }
  }

  const std::vector<Section>& sections() const { return sections_; }
  const std::vector<Elf64_Phdr>& segments() const { return segments_; }

  // The symbols of the tables of `type` (SHT_DYNSYM, SHT_SYMTAB).
  std::vector<Symbol> Symbols(uint32_t type) const {
    std::vector<Symbol> symbols;
    for (const Section& table : sections_) {
      if (table.header.sh_type != type) continue;
      const std::string_view bytes = Bytes(table.header);
      const std::string_view names = table.header.sh_link < sections_.size()
                                         ? Bytes(sections_[table.header.sh_link].header)
                                         : "";
      for (uint64_t i = 0; i < bytes.size() / sizeof(Elf64_Sym); ++i) {
        Elf64_Sym symbol;
        ReadEntry(bytes, 0, i, symbol);
        symbols.push_back({TextAt(names, symbol.st_name), symbol.st_shndx,
                           static_cast<unsigned char>(ELF64_ST_TYPE(symbol.st_info))});
      }
    }
    return symbols;
  }

  bool HasDynamicTag(int64_t tag) const {
    for (const Section& section : sections_) {
      if (section.header.sh_type != SHT_DYNAMIC) continue;
      const std::string_view bytes = Bytes(section.header);
      for (uint64_t i = 0; i < bytes.size() / sizeof(Elf64_Dyn); ++i) {
        Elf64_Dyn entry;
        ReadEntry(bytes, 0, i, entry);
        if (entry.d_tag == tag) return true;
      }
    }
    return false;
  }

  // Functions that are selected by code while the loader binds them.
  bool HasIndirectFunctions() const {
    for (const uint32_t table : {SHT_DYNSYM, SHT_SYMTAB}) {
      for (const Symbol& symbol : Symbols(table)) {
        if (symbol.section != SHN_UNDEF && symbol.type == STT_GNU_IFUNC) return true;
      }
    }
    for (const Section& section : sections_) {
      if (section.header.sh_type != SHT_RELA) continue;
      const std::string_view bytes = Bytes(section.header);
      for (uint64_t i = 0; i < bytes.size() / sizeof(Elf64_Rela); ++i) {
        Elf64_Rela entry;
        ReadEntry(bytes, 0, i, entry);
        const auto type = ELF64_R_TYPE(entry.r_info);
        if (type == R_X86_64_IRELATIVE || type == R_AARCH64_IRELATIVE) return true;
      }
    }
    return false;
  }

 private:
  std::string_view Bytes(const Elf64_Shdr& header) const {
    if (header.sh_type == SHT_NOBITS) return "";
    return image_.substr(header.sh_offset, header.sh_size);
  }

  std::string_view image_;
  std::vector<Section> sections_;
  std::vector<Elf64_Phdr> segments_;
};

constexpr std::string_view kMathFunctions[] = {
    "acos",      "acosh",     "asin",   "asinh", "atan",      "atan2",     "atanh", "cbrt",
    "ceil",      "copysign",  "cos",    "cosh",  "erf",       "erfc",      "exp",   "exp2",
    "expm1",     "fabs",      "fdim",   "floor", "fma",       "fmax",      "fmin",  "fmod",
    "frexp",     "hypot",     "ilogb",  "ldexp", "llrint",    "llround",   "log",   "log10",
    "log1p",     "log2",      "logb",   "lrint", "lround",    "modf",      "nan",   "nearbyint",
    "nextafter", "pow",       "remquo", "rint",  "remainder", "roundeven", "round", "scalbln",
    "scalbn",    "sin",       "sincos", "sinh",  "sqrt",      "tan",       "tanh",  "tgamma",
    "trunc",     "nexttoward"};
constexpr std::string_view kOtherFunctions[] = {
    "memcpy", "memmove",      "memset",        "memcmp",       "memchr",
    "strlen", "__memcpy_chk", "__memmove_chk", "__memset_chk", "__stack_chk_fail"};

// A function of <cmath> for double, float ("f") or long double ("l"), or one of <cstring>.
bool IsPureFunction(std::string_view name) {
  if (IsIn(name, kOtherFunctions) || IsIn(name, kMathFunctions)) return true;
  const bool suffix = name.ends_with('f') || name.ends_with('l');
  return suffix && IsIn(name.substr(0, name.size() - 1), kMathFunctions);
}

// Memory that only the loader writes, before it becomes read-only or when it binds functions.
bool IsLoaders(std::string_view section) {
  return section == ".dynamic" || section == ".got" || section == ".got.plt" ||
         section == ".relro_padding" || section.starts_with(".data.rel.ro");
}

// Returns true if the loader would run code of the library at load or unload.
bool RunsWithLoader(const ElfReader& elf) {
  for (const int64_t tag : {DT_INIT, DT_FINI, DT_INIT_ARRAY, DT_FINI_ARRAY, DT_PREINIT_ARRAY}) {
    if (elf.HasDynamicTag(tag)) return true;
  }
  return elf.HasIndirectFunctions();
}

// Returns true if all memory mapped writable becomes read-only before the library is used. glibc
// does that for the whole pages of PT_GNU_RELRO.
bool NothingStaysWritable(const std::vector<Elf64_Phdr>& segments) {
  const uint64_t page = 4096;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0 || segment.p_memsz == 0)
      continue;
    const bool sealed = std::any_of(segments.begin(), segments.end(), [&](const Elf64_Phdr& relro) {
      return relro.p_type == PT_GNU_RELRO && relro.p_vaddr <= segment.p_vaddr &&
             Inside(segment.p_vaddr - relro.p_vaddr, segment.p_memsz, relro.p_memsz) &&
             (relro.p_vaddr + relro.p_memsz) % page == 0;
    });
    if (!sealed) return false;
  }
  return true;
}

}  // namespace

Status CheckElfBounds(std::string_view image) {
  Status bad = Status::Corruption("a kernel binary that is no complete ELF file");
  Elf64_Ehdr header;
  if (image.size() < sizeof(header)) return bad;
  std::memcpy(&header, image.data(), sizeof(header));
  const bool elf64 = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                     header.e_ident[EI_CLASS] == ELFCLASS64 &&
                     header.e_ident[EI_DATA] == ELFDATA2LSB;
  if (!elf64 || header.e_shoff > image.size() || header.e_phoff > image.size()) return bad;
  if (header.e_shnum > 0 && header.e_shentsize != sizeof(Elf64_Shdr)) return bad;
  if (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)) return bad;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!ReadEntry(image, header.e_shoff, i, section)) return bad;
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
        !Inside(section.sh_offset, section.sh_size, image.size())) {
      return bad;
    }
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!ReadEntry(image, header.e_phoff, i, segment)) return bad;
    if (!Inside(segment.p_offset, segment.p_filesz, image.size())) return bad;
  }
  return Status::Ok();
}

Status CheckCpuLibrary(std::string_view image) {
  CF_RETURN_IF_ERROR(CheckElfBounds(image));
  const ElfReader elf(image);
  if (elf.sections().empty()) return Status::Corruption("a kernel library without section headers");
  for (const auto& [name, header] : elf.sections()) {
    const bool written = (header.sh_flags & SHF_WRITE) != 0 && (header.sh_flags & SHF_ALLOC) != 0;
    if (written && header.sh_size != 0 && !IsLoaders(name)) {
      return Status::InvalidArgument(
          "the kernel has memory of its own (" + name +
          "): no static, global or thread_local variables that can change, and nothing that runs "
          "when it is loaded; constants are const or constexpr");
    }
  }
  if (RunsWithLoader(elf)) {
    return Status::InvalidArgument(
        "the kernel library has code that runs when it is loaded or unloaded");
  }
  if (!NothingStaysWritable(elf.segments())) {
    return Status::InvalidArgument(
        "the kernel library has memory that stays writable; its linker must seal it (-z relro -z "
        "now)");
  }
  for (const Symbol& symbol : elf.Symbols(SHT_DYNSYM)) {
    if (symbol.section != SHN_UNDEF || symbol.name.empty() || IsPureFunction(symbol.name)) continue;
    return Status::InvalidArgument("the kernel uses '" + symbol.name.substr(0, 80) +
                                   "': functions of <cmath> and <cstring> only");
  }
  return Status::Ok();
}

Status CheckCubin(std::string_view image) {
  CF_RETURN_IF_ERROR(CheckElfBounds(image));
  const ElfReader elf(image);
  for (const Symbol& symbol : elf.Symbols(SHT_SYMTAB)) {
    const bool variable = symbol.section < elf.sections().size() && symbol.type == STT_OBJECT &&
                          elf.sections()[symbol.section].name == ".nv.global";
    if (!variable) continue;
    return Status::InvalidArgument(
        "the kernel has the variable '" + symbol.name.substr(0, 80) +
        "' in global memory, which outlives a launch: constants are __constant__ or constexpr "
        "(one that is zero: a literal, or an enum), anything else is an argument");
  }
  return Status::Ok();
}

}  // namespace cudaforge
