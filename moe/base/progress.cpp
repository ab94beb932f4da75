#include "moe/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe {
namespace {

constexpr double kTerminalEveryS = 0.2, kLogEveryS = 10;

}  // namespace

Progress::Progress(std::string what, double guessed_s)
    : what_(std::move(what)),
      guessed_s_(guessed_s),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {
  show(0, false);
}

double Progress::elapsed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::at(double share) {
  if (elapsed_s() - shown_s_ >= (terminal_ ? kTerminalEveryS : kLogEveryS)) show(share, false);
}

void Progress::done() { show(1, true); }

void Progress::show(double share, bool last) {
  shown_s_ = elapsed_s();
  const double left = share > 0.02 ? shown_s_ / share * (1 - share) : guessed_s_ - shown_s_;
  const std::string state = last ? fmt::format("done in {}", human_seconds(shown_s_))
                                 : fmt::format("{:3.0f} %, about {:.0f} s left", 100 * share, std::max(left, 0.0));
  log_progress(fmt::format("{}{}: {}{}", terminal_ ? "\r\x1b[K" : "", what_, state, terminal_ && !last ? "" : "\n"));
}

}  // namespace moe
