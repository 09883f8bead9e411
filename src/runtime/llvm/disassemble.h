// Machine code as text.
#pragma once
#include <string>

namespace whit {

/// The code sections of an ELF object as assembly, an instruction a line.
std::string disassemble_object(const std::string& object, const std::string& triple, const std::string& cpu, const std::string& features);

}  // namespace whit
