#include "base/build_id.h"

#include <fmt/core.h>
#include <link.h>

#include <cstring>

namespace whit {
namespace {

// The note of the object that holds this function.
int find_note(dl_phdr_info* object, size_t, void* out) {
  const auto here = reinterpret_cast<uintptr_t>(&build_id);
  bool is_own = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& p = object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + p.p_vaddr;
    is_own |= p.p_type == PT_LOAD && here >= start && here - start < p.p_memsz;
  }
  if (!is_own) return 0;
  const auto padded = [](size_t n) { return (n + 3) & ~size_t{3}; };
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& p = object->dlpi_phdr[i];
    if (p.p_type != PT_NOTE) continue;
    const auto* note = reinterpret_cast<const char*>(object->dlpi_addr + p.p_vaddr);
    const char* const end = note + p.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) head;
      std::memcpy(&head, note, sizeof head);
      const char* const name = note + sizeof head;
      const char* const id = name + padded(head.n_namesz);
      if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        for (size_t k = 0; k < head.n_descsz; ++k) *static_cast<std::string*>(out) += fmt::format("{:02x}", static_cast<unsigned char>(id[k]));
      note = id + padded(head.n_descsz);
    }
  }
  return 1;
}

}  // namespace

const std::string& build_id() {
  static const std::string id = [] {
    std::string found;
    dl_iterate_phdr(find_note, &found);
    return found;
  }();
  return id;
}

}  // namespace whit
