#include "moe/comm/store/port_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/comm/store/socket.h"
#include "moe/device/stream.h"

namespace moe::store {
namespace {

/// Returns when a process started, in the kernel's ticks since boot; 0: there is none. With it a number names one
/// process only.
uint64_t start_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');  // the name itself may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

/// Reads the port in the file, if its maker is this user's and alive.
std::optional<int> read_port(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode) || status.st_uid != getuid() || (status.st_mode & 077) != 0) return std::nullopt;
  char text[128] = "";
  const ssize_t size = read(file.get(), text, sizeof text - 1);
  int process = 0, port = 0;
  unsigned long long start = 0;
  const bool whole = size > 0 && text[size - 1] == '\n';  // its maker may still be writing
  if (!whole || std::sscanf(text, "%d %llu %d", &process, &start, &port) != 3) return std::nullopt;
  return start != 0 && start_of(process) == start ? std::optional(port) : std::nullopt;
}

}  // namespace

PortFile::PortFile(std::string path, int port, const std::string& instead) : path_(std::move(path)) {
  require<BadInput>(!read_port(path_), "{}: another run of this job is starting here; expected {} HOST:PORT", path_,
                    instead);
  unlink(path_.c_str());
  const FileDescriptor file(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const std::string text = fmt::format("{} {} {}\n", getpid(), start_of(getpid()), port);
  const bool written = file.get() >= 0 && write(file.get(), text.data(), text.size()) == ssize_t(text.size());
  require<BadInput>(written, "{}: can't be made: {}; expected {} HOST:PORT", path_, std::strerror(errno), instead);
}

PortFile::~PortFile() { unlink(path_.c_str()); }

int wait_for_port(const std::string& path, double timeout_s) {
  for (const double deadline_s = now_s() + timeout_s; now_s() < deadline_s;) {
    if (const auto port = read_port(path)) return *port;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw RankFailure(fmt::format("rank 0 has not written its port into {} for {:.1f} s", path, timeout_s));
}

}  // namespace moe::store
