// Everything of whit's public C++ interface.
#pragma once
#include "base/flags.h"
#include "whit/datasets.h"
#include "whit/distributed.h"
#include "whit/gguf.h"
#include "whit/jit.h"
#include "whit/lr_scheduler.h"
#include "whit/nn.h"
#include "whit/optim.h"
#include "whit/state.h"
#include "whit/tensor.h"
#include "whit/transform.h"
