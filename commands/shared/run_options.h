#pragma once
// Options for the ranks of verbs that run layers.
#include "moe/base/device_kind.h"

namespace moe::commands {

struct RunOptions {
  double timeout_s = 60;                // longest wait of a rank for another, in seconds
  DeviceKind device = DeviceKind::cpu;  // device of the ranks
  AttentionBy attention = AttentionBy::own;
  int threads = 0;  // CPU threads of each rank; 0: its share of the cores
};

}  // namespace moe::commands
