#include "commands/cli/errors.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/launch_board.h"
#include "moe/base/log.h"

namespace moe::cli {
namespace {

constexpr std::string_view kNoThread = "a library's thread cannot start; expected room for more (ulimit -v, ulimit -u)";

int report(const std::exception& error, int code) {
  report_line(error.what());
  return code;
}

// Returns whether any print to stdout failed. fmt::print throws for long texts, but for short ones only the stream's
// error flag is set.
bool stdout_failed() { return std::fflush(stdout) != 0 || std::ferror(stdout) != 0; }

// Memory that is released when memory first runs out, so that other ranks can be notified, threads joined and a line
// printed.
std::atomic<char*> reserve = nullptr;
constexpr size_t kReserveBytes = size_t{8} << 20;

void hold_reserve() {
  reserve = new char[kReserveBytes];
  std::set_new_handler([] {
    delete[] reserve.exchange(nullptr);
    throw std::bad_alloc();
  });
}

// A file that the program opens must not get the descriptor of a closed stdout or stderr, because prints would go into
// it. A closed descriptor is opened read-only here, so that writes to it fail.
void hold_standard_descriptors() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(number, F_GETFD) == -1) ::open("/dev/null", O_RDONLY);
}

int report_stdout() {
  report_line("stdout: cannot be written");
  return kBadInput;
}

}  // namespace

void report_line(const std::string& what) {
  if (const char* descriptor = std::getenv(LaunchBoard::kVariable)) {
    try {
      if (!LaunchBoard(std::atoi(descriptor)).is_first_report(what)) return;
    } catch (const BadInput&) {  // not started by `launch`, so this process prints the line itself
    }
  }
  log_error(what);
}

int run_and_report_errors(const std::function<int()>& body) {
  hold_standard_descriptors();
  try {
    hold_reserve();
    const int code = body();
    return stdout_failed() ? report_stdout() : code;
  } catch (const NoHardware& error) {
    return report(error, kNoHardware);
  } catch (const InputTooLarge& error) {
    return report(BadInput(std::string(error.what()) + " (--max-input)"), kBadInput);
  } catch (const BadInput& error) {
    return report(error, kBadInput);
  } catch (const WrongResult& error) {
    return report(error, kWrongResult);
  } catch (const RankFailure& error) {
    return report(error, kRankFailure);
  } catch (const std::system_error& error) {
    // Libraries start their own threads, which may throw this.
    if (stdout_failed()) return report_stdout();
    const bool no_thread = error.code() == std::errc::resource_unavailable_try_again;
    return no_thread ? report(RankFailure(std::string(kNoThread)), kRankFailure) : report(error, kDefect);
  } catch (const std::bad_alloc&) {
    return report(BadInput("out of memory: use a smaller input, or a machine with more memory"), kBadInput);
  } catch (const std::exception& error) {
    return stdout_failed() ? report_stdout() : report(error, kDefect);
  }
}

}  // namespace moe::cli
