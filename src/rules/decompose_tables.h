// The tables that decompose joins. Their rules find the Caps in RuleCtx::user.
#pragma once
#include "rules/decompose.h"
#include "rules/rules.h"

namespace whit::rules {

const RuleSet& decompose_int();     ///< division, powers, threefry
const RuleSet& decompose_math();    ///< EXP2, LOG2, POW of float32 and float64
const RuleSet& decompose_trig();    ///< SIN, and the cosine
const RuleSet& decompose_narrow();  ///< float16, bfloat16 and the float8s, through float32

}  // namespace whit::rules
