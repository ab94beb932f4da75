#include "moe/base/signals.h"

namespace moe {
namespace {

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

BlockedSignals::BlockedSignals() {
  sigemptyset(&blocked_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(signal)) sigaddset(&blocked_, signal);
  if (is_ignored(SIGCHLD)) std::signal(SIGCHLD, SIG_DFL);  // else the kernel discards how a child ended
  sigaddset(&blocked_, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked_, &previous_);
}

}  // namespace moe
