#include "runtime/llvm/disassemble.h"

#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Triple.h>

#include <memory>

#include "base/error.h"

namespace whit {

std::string disassemble_object(const std::string& object, const std::string& triple, const std::string& cpu, const std::string& features) {
  std::string error;
  const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(triple, error);
  WHIT_USER(target, Device, "[llvm] {}", error);
  const std::unique_ptr<llvm::MCRegisterInfo> registers(target->createMCRegInfo(triple));
  const std::unique_ptr<llvm::MCAsmInfo> syntax(target->createMCAsmInfo(*registers, triple, llvm::MCTargetOptions()));
  const std::unique_ptr<llvm::MCSubtargetInfo> subtarget(target->createMCSubtargetInfo(triple, cpu, features));
  const std::unique_ptr<llvm::MCInstrInfo> instructions(target->createMCInstrInfo());
  llvm::MCContext context(llvm::Triple(triple), syntax.get(), registers.get(), subtarget.get());
  const std::unique_ptr<llvm::MCDisassembler> decoder(target->createMCDisassembler(*subtarget, context));
  const std::unique_ptr<llvm::MCInstPrinter> printer(target->createMCInstPrinter(llvm::Triple(triple), 1, *syntax, *instructions, *registers));
  WHIT_USER(decoder && printer, NotImplemented, "[llvm] {} has no disassembler", triple);

  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) raise(ErrorKind::Device, "[llvm] " + llvm::toString(file.takeError()));
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const llvm::object::SectionRef& section : (*file)->sections()) {
    if (!section.isText()) continue;
    llvm::Expected<llvm::StringRef> contents = section.getContents();
    if (!contents) raise(ErrorKind::Device, "[llvm] " + llvm::toString(contents.takeError()));
    const llvm::ArrayRef<uint8_t> bytes(contents->bytes_begin(), contents->size());
    for (uint64_t at = 0, n = 0; at < bytes.size(); at += n) {
      llvm::MCInst instruction;
      out << llvm::format_hex_no_prefix(at, 6) << ":";
      if (decoder->getInstruction(instruction, n, bytes.slice(at), at, llvm::nulls()) == llvm::MCDisassembler::Success) {
        printer->printInst(&instruction, at, "", *subtarget, out);
      } else {
        n = n ? n : 1;
        out << "\t.byte " << llvm::format_hex(bytes[at], 4);
      }
      out << "\n";
    }
  }
  return text;
}

}  // namespace whit
