#include "moe/comm/nccl/detail/nccl_comm.h"

#include <thread>
#include <utility>

#include "moe/base/check.h"
#include "moe/device/cuda/check.h"
#include "moe/device/stream.h"

namespace moe::nccl {
namespace {

constexpr double kBusyS = 2e-3;

/// Waits before the next check. NCCL usually takes an operation within tens of microseconds, in which the stream may
/// idle, so this yields instead of sleeping at first. If NCCL takes longer, it waits for other ranks, and this sleeps.
void wait_a_little(double since_s) {
  if (now_s() - since_s < kBusyS) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// Returns the state of a call that NCCL continues in the background.
ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  return asked == ncclSuccess ? state : asked;
}

std::string timed_out(double timeout_s) {
  return fmt::format("timed out after {} s waiting for another rank", timeout_s);
}

std::string explain(ncclResult_t result, ncclComm_t comm) {
  return fmt::format("NCCL: {}: {}", ncclGetErrorString(result), comm ? ncclGetLastError(comm) : "");
}

bool reached(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  cudaGetLastError();
  return status != cudaErrorNotReady;  // also true if the GPU failed, which the stream reports
}

}  // namespace

Comm::~Comm() {
  const std::lock_guard lock(mutex_);
  for (const Queued& queued : queued_) spare_.push_back(queued.marks);
  for (const Marks& marks : spare_) {
    cudaEventDestroy(marks.begun);
    cudaEventDestroy(marks.ended);
  }
  if (!comm_) return;
  const double begin_s = now_s();
  ncclResult_t result = ncclCommFinalize(comm_);
  while (result == ncclInProgress && now_s() < begin_s + timeout_s_) {
    wait_a_little(begin_s);
    result = state_of(comm_);
  }
  if (result == ncclSuccess)
    ncclCommDestroy(comm_);
  else
    ncclCommAbort(comm_);
}

// Waits without the lock, because the wait lasts until the last rank joins.
void Comm::make(const Make& make) {
  const double begin_s = now_s();
  ncclResult_t result = make(&making_);
  if (making_ && (result == ncclSuccess || result == ncclInProgress)) result = state_of(making_);
  while (result == ncclInProgress && now_s() < begin_s + timeout_s_) {
    wait_a_little(begin_s);
    result = state_of(making_);
  }
  const std::lock_guard lock(mutex_);
  if (result == ncclSuccess && aborted_.empty()) {
    comm_ = making_;
    return;
  }
  const std::string why = !aborted_.empty()          ? aborted_
                          : result == ncclInProgress ? timed_out(timeout_s_)
                                                     : explain(result, making_);
  if (making_) ncclCommAbort(making_);
  throw RankFailure(failure_line("connecting", why));
}

void Comm::issue(const std::string& what, const Call& call) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    require<RankFailure>(comm_ != nullptr, "{}", failure_line(what, aborted_));
    result = call(comm_);
    // ncclCommSplit reports success while NCCL still works on it in the background.
    if (result == ncclSuccess) result = state_of(comm_);
  }
  wait_until_taken(what, result);
}

void Comm::wait_until_taken(const std::string& what, ncclResult_t result) {
  const double begin_s = now_s();
  while (result == ncclInProgress) {
    wait_a_little(begin_s);
    const std::lock_guard lock(mutex_);
    require<RankFailure>(comm_ != nullptr, "{}", failure_line(what, aborted_));
    result = state_of(comm_);
    require<RankFailure>(result != ncclInProgress || now_s() < begin_s + timeout_s_, "{}",
                         failure_line(what, timed_out(timeout_s_)));
  }
  if (result == ncclSuccess) return;
  const std::lock_guard lock(mutex_);
  throw RankFailure(failure_line(what, comm_ ? explain(result, comm_) : aborted_));
}

void Comm::queue(const std::string& what, const Call& call, cudaStream_t stream, std::shared_ptr<Failure> failure) {
  const Marks marks = take_marks();
  MOE_CHECK_CUDA(cudaEventRecord(marks.begun, stream));
  issue(what, call);
  MOE_CHECK_CUDA(cudaEventRecord(marks.ended, stream));
  const std::lock_guard lock(mutex_);
  if (!aborted_.empty()) failure->set(std::make_exception_ptr(RankFailure(failure_line(what, aborted_))));
  queued_.push_back({what, marks, std::move(failure)});
}

Comm::Marks Comm::take_marks() {
  const std::lock_guard lock(mutex_);
  Marks marks;
  if (!spare_.empty()) {
    marks = spare_.back();
    spare_.pop_back();
    return marks;
  }
  MOE_CHECK_CUDA(cudaEventCreateWithFlags(&marks.begun, cudaEventDisableTiming));
  MOE_CHECK_CUDA(cudaEventCreateWithFlags(&marks.ended, cudaEventDisableTiming));
  return marks;
}

std::string Comm::failure_text() {
  const std::lock_guard lock(mutex_);
  if (!comm_) return {};
  while (!queued_.empty() && reached(queued_.front().marks.ended)) {
    spare_.push_back(queued_.front().marks);
    queued_.pop_front();
  }
  const std::string what = queued_.empty() ? "between operations" : queued_.front().what;
  const ncclResult_t state = state_of(comm_);
  if (state != ncclSuccess && state != ncclInProgress) return failure_line(what, explain(state, comm_));
  if (queued_.empty() || !reached(queued_.front().marks.begun)) return {};
  Queued& front = queued_.front();
  if (front.begun_s == 0) front.begun_s = now_s();
  if (now_s() - front.begun_s < timeout_s_) return {};
  return failure_line(what, fmt::format("has waited {} s for another rank, which is dead, stuck or late", timeout_s_));
}

void Comm::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!aborted_.empty()) return;
  aborted_ = reason;
  for (const Queued& queued : queued_)
    if (!reached(queued.marks.ended))
      queued.failure->set(std::make_exception_ptr(RankFailure(failure_line(queued.what, reason))));
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

// A reason that already names this rank is returned as it is.
std::string Comm::failure_line(const std::string& what, const std::string& why) const {
  return why.starts_with(name_ + " in ") ? why : fmt::format("{} in {}: {}", name_, what, why);
}

}  // namespace moe::nccl
