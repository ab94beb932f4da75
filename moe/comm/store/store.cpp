#include "moe/comm/store/store.h"

#include <algorithm>
#include <c10/util/Logging.h>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/threads.h"
#include "moe/comm/store/socket.h"
#include "moe/device/stream.h"

C10_DECLARE_int(caffe2_log_level);

namespace moe::store {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr std::chrono::milliseconds kMaxPause(16);  // between two checks

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

c10d::TCPStoreOptions options_of(const Address& address, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(address.port);
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3));
  return options;
}

}  // namespace

void silence_c10d() { FLAGS_caffe2_log_level = c10::GLOG_FATAL; }

struct Server::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

Server::Server(const Address& address) : impl_(std::make_unique<Impl>()) {
  Listener listener = listen_on(address);
  address_ = {address.host, listener.port};
  c10d::TCPStoreOptions options = options_of(address_, 60);
  options.isServer = true;
  options.masterListenFd = listener.socket.release();
  try {
    impl_->store = c10::make_intrusive<c10d::TCPStore>(address_.host, options);
  } catch (const std::exception& error) {
    throw RankFailure(fmt::format("rank 0 can't serve a store: {}", reason_of(error)));
  }
}

Server::~Server() = default;

struct Store::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
  BoundedCalls calls;
};

// The call owns what it uses, since it may go on after this returns.
template <class Call>
auto Store::bounded(Call&& call) {
  using Result = decltype(call(*impl_->store));
  const auto result = std::make_shared<std::optional<Result>>();
  try {
    const auto run = [call, result, store = impl_->store] { *result = call(*store); };
    require<StoreLost>(impl_->calls.run(run, timeout_s_), "{} has not answered for {:.1f} s", server_, timeout_s_);
  } catch (const StoreLost&) {
    throw;
  } catch (const std::exception&) {
    throw StoreLost(fmt::format("{} closed its connections", server_));
  }
  return std::move(**result);
}

Store::Store(const Address& address, std::string prefix, std::string server, double timeout_s)
    : address_(address),
      prefix_(std::move(prefix)),
      server_(std::move(server)),
      timeout_s_(timeout_s),
      impl_(std::make_shared<Impl>()) {
  const double deadline_s = now_s() + timeout_s;
  // Checked here first, because c10d would write a warning for every attempt.
  require<StoreLost>(wait_for_listener(address, deadline_s), "{} did not open its store at {}:{} within {:.1f} s",
                     server_, address.host, address.port, timeout_s);
  const auto made = std::make_shared<c10::intrusive_ptr<c10d::TCPStore>>();
  bool in_time = false;
  try {
    const auto connect = [made, address, timeout_s] {
      *made = c10::make_intrusive<c10d::TCPStore>(address.host, options_of(address, timeout_s));
    };
    in_time = impl_->calls.run(connect, timeout_s);
  } catch (const std::exception& error) {
    throw StoreLost(fmt::format("{}: no store at {}:{} ({})", server_, address.host, address.port, reason_of(error)));
  }
  require<StoreLost>(in_time, "{} has not answered for {:.1f} s at {}:{}", server_, timeout_s, address.host,
                     address.port);
  impl_->store = std::move(*made);
}

Store::Store(const Store& other, const std::string& folder)
    : address_(other.address_),
      prefix_(other.prefix_ + folder),
      server_(other.server_),
      timeout_s_(other.timeout_s_),
      impl_(other.impl_) {}

Store::~Store() = default;

std::shared_ptr<Store> Store::substore(const std::string& folder) const {
  return std::shared_ptr<Store>(new Store(*this, folder));
}

void Store::set(const std::string& key, const std::string& value) {
  bounded([key = prefix_ + key, value](c10d::TCPStore& store) {
    store.set(key, bytes_of(value));
    return true;
  });
}

std::string Store::set_first(const std::string& key, const std::string& value) {
  return bounded([key = prefix_ + key, value](c10d::TCPStore& store) {
    return text_of(store.compareSet(key, Bytes(), bytes_of(value)));
  });
}

int64_t Store::add(const std::string& key, int64_t amount) {
  return bounded([key = prefix_ + key, amount](c10d::TCPStore& store) { return store.add(key, amount); });
}

bool Store::check(const std::vector<std::string>& keys) {
  std::vector<std::string> full;
  for (const auto& key : keys) full.push_back(prefix_ + key);
  return bounded([full](c10d::TCPStore& store) { return store.check(full); });
}

std::vector<std::string> Store::get_all(const std::vector<std::string>& keys) {
  std::vector<std::string> full;
  for (const auto& key : keys) full.push_back(prefix_ + key);
  return bounded([full](c10d::TCPStore& store) {
    std::vector<std::string> texts;
    for (const Bytes& value : store.multiGet(full)) texts.push_back(text_of(value));
    return texts;
  });
}

std::optional<size_t> Store::wait(const std::vector<std::string>& keys, double timeout_s,
                                  const std::function<bool()>& stop) {
  const double deadline_s = now_s() + timeout_s;
  for (auto pause = std::chrono::milliseconds(1); !check(keys); pause = std::min(pause * 2, kMaxPause)) {
    if (now_s() < deadline_s && !stop()) {
      std::this_thread::sleep_for(pause);
      continue;
    }
    for (size_t i = 0; i < keys.size(); ++i)
      if (!check({keys[i]})) return i;
  }
  return std::nullopt;
}

std::string reason_of(const std::exception& error) {
  constexpr std::string_view kCheck = "[enforce fail at ";
  constexpr rlim_t kFewFiles = 256;  // four ranks with their lanes need about 100 each
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  // "[enforce fail at FILE:LINE] CONDITION. VALUE vs VALUE. WHY"
  if (text.starts_with(kCheck))
    if (const size_t values = text.find(" vs "); values != std::string::npos)
      if (const size_t end = text.find(". ", values); end != std::string::npos) text = text.substr(end + 2);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kFewFiles)
    text +=
        fmt::format("; found a limit of {} open files, expected at least {} (ulimit -n)", files.rlim_cur, kFewFiles);
  return text;
}

std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) packed += fmt::format("{}:{}", text.size(), text);
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  const char *at = packed.data(), *const end = at + packed.size();
  while (at < end) {
    size_t size = 0;
    const auto [colon, error] = std::from_chars(at, end, size);
    const bool whole = error == std::errc() && colon < end && *colon == ':' && size < static_cast<size_t>(end - colon);
    require<RankFailure>(whole, "texts from another rank: found '{}', expected SIZE:TEXT...", packed);
    texts.emplace_back(colon + 1, size);
    at = colon + 1 + size;
  }
  return texts;
}

namespace {

/// Returns the start time of a process, in clock ticks since boot; 0 if there is no such process. Process number and
/// start time together are unique.
uint64_t start_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');  // the name itself may contain ')'
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

/// Reads the port in the file, if the process that wrote it is this user's and alive.
std::optional<int> read_port(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode) || status.st_uid != getuid() || (status.st_mode & 077) != 0) return std::nullopt;
  char text[128] = "";
  const ssize_t size = read(file.get(), text, sizeof text - 1);
  int process = 0, port = 0;
  unsigned long long start = 0;
  const bool whole = size > 0 && text[size - 1] == '\n';  // false while its process is still writing
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
  throw RankFailure(fmt::format("rank 0 did not write its port into {} within {:.1f} s", path, timeout_s));
}

struct BoundedCalls::Call {
  std::function<void()> work;
  std::exception_ptr error = nullptr;
  bool done = false;
};

struct BoundedCalls::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Call>> queue;  // mutex guards this and the two flags
  bool stopping = false, stuck = false;
  std::jthread thread;

  static void serve(const std::shared_ptr<State>& state) {
    std::unique_lock lock(state->mutex);
    while (true) {
      state->changed.wait(lock, [&] { return state->stopping || !state->queue.empty(); });
      if (state->queue.empty()) return;
      const auto call = state->queue.front();
      state->queue.pop_front();
      lock.unlock();
      try {
        call->work();
      } catch (...) {
        call->error = std::current_exception();
      }
      call->work = nullptr;
      lock.lock();
      call->done = true;
      state->changed.notify_all();
    }
  }
};

BoundedCalls::BoundedCalls() : state_(std::make_shared<State>()) {
  state_->thread = start_thread("store calls", [state = state_] { State::serve(state); });
}

BoundedCalls::~BoundedCalls() {
  bool stuck = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    stuck = state_->stuck;
  }
  state_->changed.notify_all();
  if (stuck)
    state_->thread.detach();
  else
    state_->thread.join();
}

bool BoundedCalls::run(std::function<void()> work, double timeout_s) {
  const auto call = std::make_shared<Call>(std::move(work));
  std::unique_lock lock(state_->mutex);
  if (state_->stuck) return false;
  state_->queue.push_back(call);
  state_->changed.notify_all();
  Liveness liveness(timeout_s);
  while (!liveness.timed_out()) {
    if (state_->changed.wait_for(lock, liveness.step(), [&] { return call->done; })) {
      if (call->error) std::rethrow_exception(call->error);
      return true;
    }
    liveness.note(0);
  }
  state_->stuck = true;
  state_->queue.clear();
  return false;
}

}  // namespace moe::store
