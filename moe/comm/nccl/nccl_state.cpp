#include "moe/comm/nccl/detail/nccl_state.h"

#include <algorithm>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <utility>

#include "moe/base/threads.h"

namespace moe::nccl {
namespace {

/// Makes the GPU current in the calling thread: the device's constructor did so for its own thread only.
void use_gpu_of(const NcclOptions& options) { cudaSetDevice(options.local_rank % gpu_count()); }

}  // namespace

State::State(NcclOptions options)
    : options_(std::move(options)), device_(make_device(DeviceKind::cuda, options_.local_rank)) {
  alltoall_ = reinterpret_cast<AlltoAll>(dlsym(RTLD_DEFAULT, "ncclAlltoAll"));
  watcher_ = start_thread("nccl watcher", [this] { watch(); });
}

State::~State() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  watcher_.join();
}

ncclConfig_t State::config() const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (options_.min_ctas > 0) config.minCTAs = options_.min_ctas;
  if (options_.max_ctas > 0) config.maxCTAs = options_.max_ctas;
  return config;
}

std::string State::name() const { return fmt::format("rank {}", options_.rank); }

std::shared_ptr<Comm> State::make_comm(const Comm::Make& make) {
  auto comm = std::make_shared<Comm>(name(), options_.timeout_s);
  {
    const std::lock_guard lock(mutex_);
    require<RankFailure>(aborted_.empty(), "{}: {}", name(), aborted_);
    std::erase_if(comms_, [](const auto& known) { return known.expired(); });
    comms_.push_back(comm);
  }
  try {
    comm->make(make);
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      unfinished_.push_back(comm);
    }
    abort(error.what());
    throw;
  }
  return comm;
}

std::vector<std::shared_ptr<Comm>> State::comms() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Comm>> all;
  for (const auto& known : comms_)
    if (auto comm = known.lock()) all.push_back(std::move(comm));
  return all;
}

void State::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_.empty()) return;
    aborted_ = reason;
  }
  // All at once: NCCL's abort waits for the kernels of its communicator, which may wait for those of another one.
  std::vector<std::jthread> aborting;
  for (auto& comm : comms())
    aborting.push_back(start_thread("nccl abort", [this, comm = std::move(comm), &reason] {
      use_gpu_of(options_);
      comm->abort(reason);
    }));
  aborting.clear();
  if (options_.fail) options_.fail(reason);
}

void State::watch() {
  use_gpu_of(options_);
  const auto step = std::chrono::duration<double>(std::min(0.02, options_.timeout_s / 10));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, step, [this] { return stopping_; })) {
    lock.unlock();
    if (const std::string why = options_.failure ? options_.failure() : ""; !why.empty()) abort(why);
    for (const auto& comm : comms()) {
      const std::string trouble = comm->failure_text();
      if (!trouble.empty()) abort(trouble);
    }
    lock.lock();
  }
}

}  // namespace moe::nccl
