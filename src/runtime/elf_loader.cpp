#include "runtime/elf_loader.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/os.h"

namespace whit {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif
constexpr uint64_t kMaxImage = uint64_t{1} << 30;  // below what 32-bit offsets reach
constexpr uint64_t kMaxAlign = 4096;
constexpr size_t kStubBytes = 16;
constexpr uint64_t kNowhere = ~uint64_t{0};

// How a relocation writes its value: as a number, or into the fields of an aarch64 instruction.
enum class Form : uint8_t { Nothing, Absolute, Relative, Branch, Address, Page, Low12 };
struct Howto {
  uint64_t type;
  Form form;
  int n_bits = 0;        // of the number; of a branch's distance in words
  int shift = 0;         // where a branch has it; log2 of the bytes that a Low12 counts in
  bool is_slot = false;  // of the symbol's slot in the address table, not of the symbol
  bool is_signed = true;
};
constexpr Howto kX86_64[] = {
    {R_X86_64_NONE, Form::Nothing},
    {R_X86_64_64, Form::Absolute, 64},
    {R_X86_64_32, Form::Absolute, 32, 0, false, false},
    {R_X86_64_32S, Form::Absolute, 32},
    {R_X86_64_PC64, Form::Relative, 64},
    {R_X86_64_PC32, Form::Relative, 32},
    {R_X86_64_PLT32, Form::Relative, 32},
    {R_X86_64_GOTPCREL, Form::Relative, 32, 0, true},
    {R_X86_64_GOTPCRELX, Form::Relative, 32, 0, true},
    {R_X86_64_REX_GOTPCRELX, Form::Relative, 32, 0, true},
};
constexpr Howto kAarch64[] = {
    {R_AARCH64_NONE, Form::Nothing},
    {R_AARCH64_ABS64, Form::Absolute, 64},
    {R_AARCH64_PREL64, Form::Relative, 64},
    {R_AARCH64_PREL32, Form::Relative, 32},
    {314, Form::Relative, 32},  // R_AARCH64_PLT32, which some elf.h lack
    {R_AARCH64_CALL26, Form::Branch, 26},
    {R_AARCH64_JUMP26, Form::Branch, 26},
    {R_AARCH64_CONDBR19, Form::Branch, 19, 5},
    {R_AARCH64_TSTBR14, Form::Branch, 14, 5},
    {R_AARCH64_ADR_PREL_LO21, Form::Address},
    {R_AARCH64_ADR_PREL_PG_HI21, Form::Page},
    {R_AARCH64_ADR_PREL_PG_HI21_NC, Form::Page},
    {R_AARCH64_ADR_GOT_PAGE, Form::Page, 0, 0, true},
    {R_AARCH64_ADD_ABS_LO12_NC, Form::Low12},
    {R_AARCH64_LDST8_ABS_LO12_NC, Form::Low12},
    {R_AARCH64_LDST16_ABS_LO12_NC, Form::Low12, 0, 1},
    {R_AARCH64_LDST32_ABS_LO12_NC, Form::Low12, 0, 2},
    {R_AARCH64_LDST64_ABS_LO12_NC, Form::Low12, 0, 3},
    {R_AARCH64_LDST128_ABS_LO12_NC, Form::Low12, 0, 4},
    {R_AARCH64_LD64_GOT_LO12_NC, Form::Low12, 0, 3, true},
};

const Howto* find_howto(uint64_t type) {
  for (const Howto& how : kMachine == EM_X86_64 ? std::span<const Howto>(kX86_64) : std::span<const Howto>(kAarch64))
    if (how.type == type) return &how;
  return nullptr;
}

}  // namespace

// The image: [code sections, stubs | constants, address table], the parts on pages of their own. A stub is a jump
// through the address table: functions of the process may be farther away than a call instruction reaches.
class Linker {
 public:
  Linker(std::string_view file, std::string_view origin) : file_(file), origin_(origin) {}

  std::shared_ptr<LoadedObject> link() {
    read_header();
    lay_out();
    read_symbols();
    collect_relocations();
    std::shared_ptr<LoadedObject> object(new LoadedObject());
    map(*object);
    for (const Relocation& r : relocations_) apply(r);
    for (size_t i = 0; i < symbols_.size(); ++i) {
      const Elf64_Sym& s = symbols_[i];
      if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || ELF64_ST_BIND(s.st_info) == STB_LOCAL) continue;
      if (s.st_shndx == SHN_UNDEF || s.st_shndx == SHN_ABS) continue;
      const Section& section = sections_[s.st_shndx];
      check(section.is_code() && s.st_value < section.header.sh_size, "function '{}' lies outside the code", symbol_name(i));
      object->functions_.emplace_back(std::string(symbol_name(i)), section.at + s.st_value);
    }
    protect();
    return object;
  }

 private:
  struct Section {
    Elf64_Shdr header;
    std::string_view name;
    uint64_t at = kNowhere;  // offset in the image; nowhere for sections that are not loaded
    bool is_code() const { return at != kNowhere && (header.sh_flags & SHF_EXECINSTR); }
  };
  struct Relocation {
    size_t section;  // the section it changes
    Elf64_Rela rela;
    const Howto* how;
  };

  template <class... Args> void check(bool ok, fmt::format_string<Args...> text, Args&&... args) const {
    if (!ok) [[unlikely]]
      raise(ErrorKind::Device, "[load] {}: {}", origin_, fmt::format(text, std::forward<Args>(args)...));
  }

  // n_bytes at `offset` of the file, named `what` when they are not there.
  std::string_view bytes(uint64_t offset, uint64_t n_bytes, const char* what) const {
    check(offset <= file_.size() && n_bytes <= file_.size() - offset, "{} at {} with {} bytes lies outside the file of {} bytes", what, offset,
          n_bytes, file_.size());
    return file_.substr(offset, n_bytes);
  }
  template <class T> T read(uint64_t offset, const char* what) const {
    T value;
    std::memcpy(&value, bytes(offset, sizeof(T), what).data(), sizeof(T));
    return value;
  }
  // The text at `offset` of a string table.
  std::string_view text_at(const Elf64_Shdr& table, uint64_t offset, const char* what) const {
    const std::string_view all = bytes(table.sh_offset, table.sh_size, what);
    check(offset < all.size(), "{}: offset {} is past its {} bytes", what, offset, all.size());
    const size_t end = all.find('\0', offset);
    check(end != std::string_view::npos, "{}: the text at {} does not end", what, offset);
    return all.substr(offset, end - offset);
  }

  void read_header() {
    check(file_.size() >= sizeof(Elf64_Ehdr), "{} bytes are too few for an ELF header", file_.size());
    const auto header = read<Elf64_Ehdr>(0, "the header");
    check(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0, "it is no ELF file (no magic)");
    check(header.e_ident[EI_CLASS] == ELFCLASS64, "class {} is not 64-bit", header.e_ident[EI_CLASS]);
    check(header.e_ident[EI_DATA] == ELFDATA2LSB, "byte order {} is not little-endian", header.e_ident[EI_DATA]);
    check(header.e_type == ET_REL, "type {} is no object file", header.e_type);
    check(header.e_machine == kMachine, "it is for machine {}, this is machine {}", header.e_machine, kMachine);
    check(header.e_shentsize == sizeof(Elf64_Shdr), "section headers have {} bytes", header.e_shentsize);
    check(header.e_shnum > 0 && header.e_shstrndx < header.e_shnum, "section names are in section {} of {}", header.e_shstrndx, header.e_shnum);
    bytes(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), "the section table");
    sections_.resize(header.e_shnum);
    for (size_t i = 0; i < sections_.size(); ++i) sections_[i].header = read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr), "a section header");
    for (Section& s : sections_) s.name = text_at(sections_[header.e_shstrndx].header, s.header.sh_name, "the section names");
  }

  // Gives every section that is needed at run time its place.
  void lay_out() {
    for (const Section& s : sections_) {
      const Elf64_Shdr& h = s.header;
      if (!(h.sh_flags & SHF_ALLOC) || h.sh_size == 0) continue;
      check(!(h.sh_flags & SHF_TLS), "section {} is thread-local, which kernels may not use", s.name);
      check(h.sh_type != SHT_INIT_ARRAY && h.sh_type != SHT_FINI_ARRAY && h.sh_type != SHT_PREINIT_ARRAY,
            "section {} runs code at load, which kernels may not", s.name);
      check(!(h.sh_flags & SHF_WRITE) || s.name.starts_with(".data.rel.ro"), "section {} is writable, but kernels have no state", s.name);
    }
    place(true);  // stubs and constants follow in collect_relocations
  }

  static bool wanted(const Section& s) {
    const Elf64_Shdr& h = s.header;
    if (!(h.sh_flags & SHF_ALLOC) || h.sh_size == 0 || s.name == ".eh_frame") return false;
    return h.sh_type == SHT_PROGBITS || h.sh_type == SHT_NOBITS;
  }

  void place(bool code) {
    for (Section& s : sections_) {
      const Elf64_Shdr& h = s.header;
      if (!wanted(s) || code != ((h.sh_flags & SHF_EXECINSTR) != 0)) continue;
      const uint64_t align = std::max<uint64_t>(h.sh_addralign, 1);
      check((align & (align - 1)) == 0 && align <= kMaxAlign, "section {} is aligned to {}", s.name, align);
      if (h.sh_type == SHT_PROGBITS) bytes(h.sh_offset, h.sh_size, "a section");
      check(h.sh_size <= kMaxImage, "section {} has {} bytes", s.name, h.sh_size);
      s.at = (size_ + align - 1) & ~(align - 1);
      size_ = s.at + h.sh_size;
      check(size_ <= kMaxImage, "the image is larger than {} bytes", kMaxImage);
    }
  }

  void read_symbols() {
    const Section* table = nullptr;
    for (const Section& s : sections_) {
      if (s.header.sh_type != SHT_SYMTAB) continue;
      check(!table, "it has two symbol tables");
      table = &s;
    }
    check(table != nullptr, "it has no symbol table");
    const Elf64_Shdr& h = table->header;
    check(h.sh_entsize == sizeof(Elf64_Sym) && h.sh_size % sizeof(Elf64_Sym) == 0, "symbols have {} bytes", h.sh_entsize);
    check(h.sh_link < sections_.size(), "symbol names are in section {} of {}", h.sh_link, sections_.size());
    names_ = sections_[h.sh_link].header;
    symbols_.resize(bytes(h.sh_offset, h.sh_size, "the symbol table").size() / sizeof(Elf64_Sym));
    if (!symbols_.empty()) std::memcpy(symbols_.data(), file_.data() + h.sh_offset, h.sh_size);
    for (size_t i = 0; i < symbols_.size(); ++i) {
      const Elf64_Sym& s = symbols_[i];
      if (s.st_shndx == SHN_UNDEF || s.st_shndx == SHN_ABS) continue;
      check(s.st_shndx < sections_.size(), "symbol {} lies in section {} of {}", i, s.st_shndx, sections_.size());
      const Section& section = sections_[s.st_shndx];
      check(!wanted(section) || s.st_value <= section.header.sh_size, "symbol '{}' lies at {} of section {} of {} bytes", symbol_name(i), s.st_value,
            section.name, section.header.sh_size);
    }
    slots_.resize(symbols_.size());
    stubs_.resize(symbols_.size());
  }

  std::string_view symbol_name(size_t i) const {
    const Elf64_Sym& s = symbols_[i];
    if (ELF64_ST_TYPE(s.st_info) == STT_SECTION && s.st_shndx < sections_.size()) return sections_[s.st_shndx].name;
    return text_at(names_, s.st_name, "the symbol names");
  }

  bool is_external(size_t symbol) const { return symbols_[symbol].st_shndx == SHN_UNDEF && symbol != 0; }

  // Which relocations there are; what they need of the address table and of stubs.
  void collect_relocations() {
    for (const Section& s : sections_) {
      const Elf64_Shdr& h = s.header;
      if (h.sh_type != SHT_RELA && h.sh_type != SHT_REL) continue;
      check(h.sh_info < sections_.size(), "{} changes section {} of {}", s.name, h.sh_info, sections_.size());
      if (!wanted(sections_[h.sh_info])) continue;
      check(h.sh_type == SHT_RELA && h.sh_entsize == sizeof(Elf64_Rela) && h.sh_size % sizeof(Elf64_Rela) == 0,
            "{} is no table of relocations with addends", s.name);
      bytes(h.sh_offset, h.sh_size, "a relocation table");
      for (size_t at = 0; at < h.sh_size; at += sizeof(Elf64_Rela)) {
        Relocation r{h.sh_info, read<Elf64_Rela>(h.sh_offset + at, "a relocation"), nullptr};
        const size_t symbol = ELF64_R_SYM(r.rela.r_info);
        check(symbol < symbols_.size(), "a relocation in {} names symbol {} of {}", s.name, symbol, symbols_.size());
        check_symbol(symbol);
        const uint64_t type = ELF64_R_TYPE(r.rela.r_info);
        r.how = find_howto(type);
        check(r.how, "relocation {} of '{}' in {} is unknown", type, symbol_name(symbol), sections_[h.sh_info].name);
        if (r.how->is_slot) slots_[symbol] = 1;
        if (is_external(symbol)) slots_[symbol] = stubs_[symbol] = 1;
        relocations_.push_back(r);
      }
    }
    size_ = std::max<uint64_t>((size_ + kStubBytes - 1) & ~(kStubBytes - 1), kStubBytes);
    for (uint64_t& stub : stubs_)
      if (stub) stub = std::exchange(size_, size_ + kStubBytes);
    code_size_ = size_;
    const uint64_t page = os::page_size();
    constants_at_ = size_ = (size_ + page - 1) & ~(page - 1);
    place(false);
    size_ = (size_ + 7) & ~uint64_t{7};
    for (uint64_t& slot : slots_)
      if (slot) slot = std::exchange(size_, size_ + 8);
    size_ = std::max<uint64_t>((size_ + page - 1) & ~(page - 1), page);
    check(size_ <= kMaxImage, "the image is larger than {} bytes", kMaxImage);
  }

  void check_symbol(size_t i) const {
    const Elf64_Sym& s = symbols_[i];
    const auto type = ELF64_ST_TYPE(s.st_info);
    check(type == STT_NOTYPE || type == STT_FUNC || type == STT_OBJECT || type == STT_SECTION, "symbol '{}' has type {}, which kernels may not use",
          symbol_name(i), type);
    if (i == 0 || s.st_shndx == SHN_ABS) return;
    if (s.st_shndx == SHN_UNDEF) {
      check(find_runtime_symbol(symbol_name(i)) != nullptr, "symbol '{}' is unknown: kernels may not call it", symbol_name(i));
      return;
    }
    check(wanted(sections_[s.st_shndx]), "symbol '{}' lies in section {}, which is not loaded", symbol_name(i), sections_[s.st_shndx].name);
  }

  void map(LoadedObject& object) {
    image_ = static_cast<unsigned char*>(os::map_pages(size_, false));
    WHIT_USER(image_, Memory, "[load] {}: no memory for an image of {} bytes", origin_, size_);
    object.image_ = image_;
    object.n_bytes_ = size_;
    object.origin_ = origin_;
    for (const Section& s : sections_) {
      if (s.at == kNowhere || s.header.sh_type == SHT_NOBITS) continue;
      std::memcpy(image_ + s.at, file_.data() + s.header.sh_offset, s.header.sh_size);
    }
    for (size_t i = 0; i < symbols_.size(); ++i) {
      if (slots_[i]) put<uint64_t>(slots_[i], is_external(i) ? external(i) : address_of(i));
      if (stubs_[i]) write_stub(stubs_[i], slots_[i]);
    }
  }

  uint64_t external(size_t i) const { return reinterpret_cast<uint64_t>(find_runtime_symbol(symbol_name(i))); }
  uint64_t base() const { return reinterpret_cast<uint64_t>(image_); }

  // Where a reference to the symbol leads: functions of the process are reached by their stub.
  uint64_t address_of(size_t i) const {
    const Elf64_Sym& s = symbols_[i];
    if (stubs_[i]) return base() + stubs_[i];
    if (i == 0) return 0;
    if (s.st_shndx == SHN_ABS) return s.st_value;
    return base() + sections_[s.st_shndx].at + s.st_value;
  }

  template <class T> void put(uint64_t at, T value) { std::memcpy(image_ + at, &value, sizeof(value)); }
  void write_stub(uint64_t at, uint64_t slot) {
    if (kMachine == EM_X86_64) {
      put<uint16_t>(at, 0x25FF);  // jmp *slot(%rip)
      put<uint32_t>(at + 2, static_cast<uint32_t>(slot - (at + 6)));
    } else {
      const uint64_t pages = ((base() + slot) >> 12) - ((base() + at) >> 12);
      put<uint32_t>(at, 0x90000010 | adr_bits(pages));                                                    // adrp x16
      put<uint32_t>(at + 4, 0xF9400210 | static_cast<uint32_t>((((base() + slot) & 0xFFF) >> 3) << 10));  // ldr x16
      put<uint32_t>(at + 8, 0xD61F0200);                                                                  // br x16
    }
  }

  static uint32_t adr_bits(uint64_t value) { return static_cast<uint32_t>(((value & 3) << 29) | (((value >> 2) & 0x7FFFF) << 5)); }

  void apply(const Relocation& r) {
    const Howto& how = *r.how;
    const Section& section = sections_[r.section];
    const uint64_t size = section.header.sh_size, offset = r.rela.r_offset;
    const uint64_t n_bytes = how.form == Form::Nothing ? 0 : how.n_bits == 64 ? 8 : 4;
    check(offset <= size && n_bytes <= size - offset, "a relocation changes {} bytes at {} of {} of {} bytes", n_bytes, offset, section.name, size);
    const size_t symbol = ELF64_R_SYM(r.rela.r_info);
    const uint64_t at = section.at + offset, target = how.is_slot ? base() + slots_[symbol] : address_of(symbol);
    const uint64_t value = target + static_cast<uint64_t>(r.rela.r_addend);
    const auto relative = static_cast<int64_t>(value - (base() + at));
    const auto fits = [&](bool ok) { check(ok, "'{}' is too far from {}+{} for its relocation", symbol_name(symbol), section.name, offset); };
    // Replaces the bits of `mask` in an instruction.
    const auto patch = [&](uint32_t mask, uint64_t bits) {
      uint32_t word;
      std::memcpy(&word, image_ + at, sizeof(word));
      put<uint32_t>(at, (word & ~mask) | (static_cast<uint32_t>(bits) & mask));
    };
    constexpr uint32_t kAdrMask = 0x60FFFFE0;
    switch (how.form) {
      case Form::Nothing: return;
      case Form::Absolute:
      case Form::Relative: {
        const int64_t v = how.form == Form::Relative ? relative : static_cast<int64_t>(value);
        if (how.n_bits == 64) return put<int64_t>(at, v);
        fits(how.is_signed ? v == static_cast<int32_t>(v) : v == static_cast<uint32_t>(v));
        return put<int32_t>(at, static_cast<int32_t>(v));
      }
      case Form::Branch: {
        const int64_t limit = int64_t{1} << (how.n_bits + 1);  // n_bits of signed words
        fits((relative & 3) == 0 && relative >= -limit && relative < limit);
        const uint32_t mask = ((uint32_t{1} << how.n_bits) - 1) << how.shift;
        return patch(mask, static_cast<uint64_t>(relative >> 2) << how.shift);
      }
      case Form::Address: fits(relative >= -(1 << 20) && relative < (1 << 20)); return patch(kAdrMask, adr_bits(static_cast<uint64_t>(relative)));
      case Form::Page: return patch(kAdrMask, adr_bits((value >> 12) - ((base() + at) >> 12)));
      case Form::Low12: fits((value & ((uint64_t{1} << how.shift) - 1)) == 0); return patch(0xFFFu << 10, ((value & 0xFFF) >> how.shift) << 10);
    }
  }

  void protect() {
    const bool ok = os::protect_pages(image_, constants_at_, true) &&
                    (constants_at_ == size_ || os::protect_pages(image_ + constants_at_, size_ - constants_at_, false));
    check(ok, "the system refuses memory that may be executed");
    char* const code = reinterpret_cast<char*>(image_);
    __builtin___clear_cache(code, code + code_size_);
  }

  std::string_view file_;
  std::string origin_;
  std::vector<Section> sections_;
  std::vector<Elf64_Sym> symbols_;
  Elf64_Shdr names_{};
  std::vector<Relocation> relocations_;
  // By symbol: where its slot in the address table and its stub are; 0, which is never such a place, for none.
  std::vector<uint64_t> slots_, stubs_;
  uint64_t size_ = 0, code_size_ = 0, constants_at_ = 0;
  unsigned char* image_ = nullptr;
};

std::shared_ptr<LoadedObject> LoadedObject::load(std::string_view file, std::string_view origin) { return Linker(file, origin).link(); }

LoadedObject::~LoadedObject() {
  if (image_) os::unmap_pages(image_, n_bytes_);
}

void* LoadedObject::must_find(std::string_view function) const {
  std::string names;
  for (const auto& [name, at] : functions_) {
    if (name == function) return static_cast<char*>(image_) + at;
    names += names.empty() ? name : ", " + name;
  }
  raise(ErrorKind::Device, "[load] {}: there is no function '{}'; there are: {}", origin_, function, names.empty() ? "none" : names);
}

}  // namespace whit
