#pragma once
// What the verbs that run layers are told of their ranks.
#include "moe/base/device_kind.h"

namespace moe::commands {

struct RunOptions {
  double timeout_s = 60;                // that a rank waits for another
  DeviceKind device = DeviceKind::cpu;  // of the ranks
  AttentionBy attention = AttentionBy::own;
  int threads = 0;  // of each rank; 0: its share of the cores
};

}  // namespace moe::commands
