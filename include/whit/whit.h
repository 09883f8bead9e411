// Everything of whit's public C++ interface.
#pragma once
#include "whit/tensor.h"
