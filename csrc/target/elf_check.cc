#include "target/elf_check.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace cudaforge {
namespace {

// [offset, offset + size) lies inside `total`, without overflow.
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

}  // namespace cudaforge
