#include "moe/device/recorded_work.h"

#include <atomic>
#include <utility>
#include <vector>

#include "moe/base/check.h"
#include "moe/device/cuda/check.h"
#include "moe/device/cuda/cuda_stream.h"
#include "moe/device/cuda/kernels.h"
#include "moe/device/cuda/owned.h"

namespace moe {
namespace {

using cuda::CudaStream;
using cuda::Owned;

using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;

CudaStream& on_gpu(Stream& stream) {
  auto* found = dynamic_cast<CudaStream*>(&stream);
  require<Unsupported>(found != nullptr, "recorded passes: found a stream of the CPU, expected one of a GPU");
  return *found;
}

/// A capture of the first lane, from which the others are forked. The destructor ends the capture if finish() was not
/// called.
class Capture {
 public:
  Capture(std::vector<CudaStream*> lanes, std::span<Event* const> timed)
      : lanes_(std::move(lanes)), recording_{++last_id, {timed.begin(), timed.end()}} {
    MOE_CHECK_CUDA(cudaEventCreateWithFlags(&between_.handle, cudaEventDisableTiming));
  }
  ~Capture() {
    if (!begun_) return;
    Graph dropped;
    end(dropped);
    cudaGetLastError();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void begin() {
    // This mode forbids calls that would break a capture in this thread only; other threads are not restricted.
    MOE_CHECK_CUDA(cudaStreamBeginCapture(first(), cudaStreamCaptureModeThreadLocal));
    begun_ = true;
    MOE_CHECK_CUDA(cudaEventRecord(between_.handle, first()));
    for (CudaStream* lane : lanes_) {
      if (lane->native() != first()) MOE_CHECK_CUDA(cudaStreamWaitEvent(lane->native(), between_.handle, 0));
      lane->set_recording(&recording_);
    }
  }

  void finish(Graph& graph) { MOE_CHECK_CUDA(end(graph)); }

 private:
  cudaStream_t first() const { return lanes_.front()->native(); }

  // Joins the lanes into the first. If a join fails, ending the capture fails too and returns the error.
  cudaError_t end(Graph& graph) {
    begun_ = false;
    for (CudaStream* lane : lanes_) {
      lane->set_recording(nullptr);
      if (lane->native() == first()) continue;
      cudaEventRecord(between_.handle, lane->native());
      cudaStreamWaitEvent(first(), between_.handle, 0);
    }
    return cudaStreamEndCapture(first(), &graph.handle);
  }

  static std::atomic<uint64_t> last_id;

  const std::vector<CudaStream*> lanes_;
  const cuda::Recording recording_;
  Owned<cudaEvent_t, cudaEventDestroy> between_;
  bool begun_ = false;
};

std::atomic<uint64_t> Capture::last_id{0};

class CudaWork final : public RecordedWork {
 public:
  CudaWork(CudaStream& first, const Graph& graph) : first_(first) {
    // Kernels keep the urgency of the lane that they were recorded on.
    MOE_CHECK_CUDA(
        cudaGraphInstantiateWithFlags(&ready_.handle, graph.handle, cudaGraphInstantiateFlagUseNodePriority));
    MOE_CHECK_CUDA(cudaGraphUpload(ready_.handle, first.native()));
  }
  void run() override {
    first_.launch([this](void*) { MOE_CHECK_CUDA(cudaGraphLaunch(ready_.handle, first_.native())); });
  }

 private:
  CudaStream& first_;
  Owned<cudaGraphExec_t, cudaGraphExecDestroy> ready_;
};

}  // namespace

std::unique_ptr<RecordedWork> record_work(std::span<Stream* const> lanes, std::span<Event* const> timed,
                                          const std::function<void()>& issue) {
  require<BadInput>(!lanes.empty(), "recorded passes: found no lane, expected one at least");
  std::vector<CudaStream*> streams;
  for (Stream* lane : lanes) streams.push_back(&on_gpu(*lane));
  streams.front()->gpu().use();
  Graph graph;
  {
    Capture capture(streams, timed);
    capture.begin();
    issue();
    for (const CudaStream* lane : streams) lane->failure()->rethrow();
    capture.finish(graph);
  }
  return std::make_unique<CudaWork>(*streams.front(), graph);
}

void launch_nothing(Stream& stream) {
  on_gpu(stream).launch([](void* native) { cuda::launch_nothing(static_cast<cudaStream_t>(native)); });
}

}  // namespace moe
