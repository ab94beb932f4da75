#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "moe/base/check.h"
#include "moe/comm/nccl/detail/nccl_state.h"
#include "moe/device/cuda/cuda_stream.h"

namespace moe::nccl {
namespace {

const std::byte* at(const void* data, int64_t offset) { return static_cast<const std::byte*>(data) + offset; }
std::byte* at(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }

int64_t sum_of(const std::vector<int64_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float16:
      return ncclFloat16;
  }
  return ncclFloat32;
}

/// A group of calls that NCCL starts as one; its result is that of the first call that failed.
class Grouped {
 public:
  Grouped() : result_(ncclGroupStart()) {}
  void add(ncclResult_t result) {
    if (result_ == ncclSuccess && result != ncclInProgress) result_ = result;
  }
  ncclResult_t end() {
    const ncclResult_t ended = ncclGroupEnd();
    return result_ == ncclSuccess ? ended : result_;
  }

 private:
  ncclResult_t result_;
};

/// One operation: its buffers, and the NCCL call, which needs them in GPU memory. Equal buffers mean an in-place
/// operation.
struct Operation {
  std::string_view name;
  const void* send = nullptr;
  int64_t send_bytes = 0;
  void* receive = nullptr;
  int64_t receive_bytes = 0;
  std::function<ncclResult_t(const void* send, void* receive, ncclComm_t comm, cudaStream_t stream)> run;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<State> state, std::shared_ptr<Comm> comm, int rank, int size)
      : state_(std::move(state)), comm_(std::move(comm)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Communicator> split(int colour, int key) override;
  void abort(const std::string& reason) override {
    state_->abort(fmt::format("{} aborted: {}", state_->name(), reason));
  }

 private:
  void do_alltoall(const void* send, void* receive, int64_t block, CommCall call) override {
    const auto run = [n = size_, block, whole = state_->alltoall()](const void* from, void* to, ncclComm_t comm,
                                                                    cudaStream_t stream) {
      const auto bytes = static_cast<size_t>(block);
      if (whole) return whole(from, to, bytes, ncclUint8, comm, stream);
      Grouped group;
      for (int peer = 0; peer < n; ++peer) {
        group.add(ncclSend(at(from, peer * block), bytes, ncclUint8, peer, comm, stream));
        group.add(ncclRecv(at(to, peer * block), bytes, ncclUint8, peer, comm, stream));
      }
      return group.end();
    };
    launch({"alltoall", send, block * size_, receive, block * size_, run}, call);
  }

  void do_alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive,
                    std::vector<int64_t> receive_bytes, CommCall call) override {
    const int64_t sent = sum_of(send_bytes), received = sum_of(receive_bytes);
    const auto run = [sends = std::move(send_bytes), receives = std::move(receive_bytes)](
                         const void* from, void* to, ncclComm_t comm, cudaStream_t stream) {
      Grouped group;
      int64_t out = 0, in = 0;
      for (size_t i = 0; i < sends.size(); out += sends[i], in += receives[i], ++i) {
        const int peer = static_cast<int>(i);
        if (sends[i] > 0)
          group.add(ncclSend(at(from, out), static_cast<size_t>(sends[i]), ncclUint8, peer, comm, stream));
        if (receives[i] > 0)
          group.add(ncclRecv(at(to, in), static_cast<size_t>(receives[i]), ncclUint8, peer, comm, stream));
      }
      return group.end();
    };
    launch({"alltoallv", send, sent, receive, received, run}, call);
  }

  void do_allgather(const void* send, void* receive, int64_t block, CommCall call) override {
    const auto run = [block](const void* from, void* to, ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(from, to, static_cast<size_t>(block), ncclUint8, comm, stream);
    };
    launch({"allgather", send, block, receive, block * size_, run}, call);
  }

  void do_allgatherv(const void* send, void* receive, std::vector<int64_t> blocks, CommCall call) override {
    const int64_t all = sum_of(blocks), ours = blocks[rank_];
    const auto run = [rank = rank_, blocks = std::move(blocks)](const void* from, void* to, ncclComm_t comm,
                                                                cudaStream_t stream) {
      Grouped group;
      int64_t offset = 0;
      for (size_t i = 0; i < blocks.size(); offset += blocks[i++]) {
        const int root = static_cast<int>(i);
        std::byte* block = at(to, offset);
        if (blocks[i] > 0)
          group.add(ncclBroadcast(root == rank ? from : block, block, static_cast<size_t>(blocks[i]), ncclUint8, root,
                                  comm, stream));
      }
      return group.end();
    };
    launch({"allgatherv", send, ours, receive, all, run}, call);
  }

  void do_reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) override {
    const auto run = [block, dtype](const void* from, void* to, ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(from, to, static_cast<size_t>(block), type_of(dtype), ncclSum, comm, stream);
    };
    const int64_t bytes = block * bytes_of(dtype);
    launch({"reducescatter", send, bytes * size_, receive, bytes, run}, call);
  }

  void do_reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype,
                         CommCall call) override {
    const int64_t width = bytes_of(dtype), all = sum_of(blocks), ours = blocks[rank_];
    const auto run = [width, dtype, blocks = std::move(blocks)](const void* from, void* to, ncclComm_t comm,
                                                                cudaStream_t stream) {
      Grouped group;
      int64_t offset = 0;
      for (size_t i = 0; i < blocks.size(); offset += blocks[i++] * width) {
        const int root = static_cast<int>(i);
        if (blocks[i] > 0)
          group.add(ncclReduce(at(from, offset), to, static_cast<size_t>(blocks[i]), type_of(dtype), ncclSum, root,
                               comm, stream));
      }
      return group.end();
    };
    launch({"reducescatterv", send, all * width, receive, ours * width, run}, call);
  }

  void do_allreduce(void* data, int64_t elements, DType dtype, CommCall call) override {
    const auto run = [elements, dtype](const void* from, void* to, ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(from, to, static_cast<size_t>(elements), type_of(dtype), ncclSum, comm, stream);
    };
    const int64_t bytes = elements * bytes_of(dtype);
    launch({"allreduce", data, bytes, data, bytes, run}, call);
  }

  void do_broadcast(void* data, int64_t bytes, int root, CommCall call) override {
    const auto run = [bytes, root](const void* from, void* to, ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(from, to, static_cast<size_t>(bytes), ncclUint8, root, comm, stream);
    };
    launch({"broadcast", data, bytes, data, bytes, run}, call);
  }

  void do_barrier(CommCall call) override {
    if (!token_) token_ = std::make_shared<Memory>(state_->device().make_memory(sizeof(float)));
    const auto run = [token = token_](const void*, void*, ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(token->data(), token->data(), 1, ncclFloat32, ncclSum, comm, stream);
    };
    launch({"barrier", nullptr, 0, nullptr, 0, run}, call);
  }

  void do_send(const void* data, int64_t bytes, int peer, CommCall call) override {
    const auto run = [bytes, peer](const void* from, void*, ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(from, static_cast<size_t>(bytes), ncclUint8, peer, comm, stream);
    };
    launch({"send", data, bytes, nullptr, 0, run}, call);
  }

  void do_receive(void* data, int64_t bytes, int peer, CommCall call) override {
    const auto run = [bytes, peer](const void*, void* to, ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(to, static_cast<size_t>(bytes), ncclUint8, peer, comm, stream);
    };
    launch({"receive", nullptr, 0, data, bytes, run}, call);
  }

  void launch(Operation operation, CommCall& call);
  void launch_staged(Operation operation, CommCall& call);

  const std::shared_ptr<State> state_;
  const std::shared_ptr<Comm> comm_;
  const int rank_, size_;
  std::shared_ptr<Memory> token_;  // the value that barrier() sums
};

void NcclCommunicator::launch(Operation operation, CommCall& call) {
  const std::string_view op = operation.name;
  auto* stream = dynamic_cast<cuda::CudaStream*>(&call.stream);
  if (!stream) return launch_staged(std::move(operation), call);
  const std::string what = call.task.empty() ? std::string(op) : fmt::format("'{}' ({})", call.task, op);
  stream->launch([&](void* native) {
    const auto queue = static_cast<cudaStream_t>(native);
    const auto run = [&](ncclComm_t comm) { return operation.run(operation.send, operation.receive, comm, queue); };
    // The events by which operations are watched would belong to the recording, where nobody may query them.
    if (stream->recording())
      comm_->issue(what, run);
    else
      comm_->queue(what, run, queue, stream->failure());
  });
}

/// Copies host memory to the GPU, runs the operation and copies back, on a CPU stream's thread.
void NcclCommunicator::launch_staged(Operation operation, CommCall& call) {
  const auto ours = std::make_shared<NcclCommunicator>(state_, comm_, rank_, size_);
  call.stream.launch([ours, operation = std::move(operation), task = std::string(call.task)](void*) {
    Device& device = ours->state_->device();
    const auto stream = device.make_stream("staging");
    const bool in_place = operation.send == operation.receive;
    const Memory sent = device.make_memory(in_place ? 0 : operation.send_bytes);
    const Memory received = device.make_memory(operation.receive_bytes);
    Operation staged = operation;
    staged.send = in_place ? received.data() : sent.data();
    staged.receive = received.data();
    stream->copy({in_place ? received.data() : sent.data(), operation.send, operation.send_bytes});
    CommCall on_gpu{*stream, {}, task};
    ours->launch(staged, on_gpu);
    stream->copy({operation.receive, received.data(), operation.receive_bytes});
    stream->synchronize();
  });
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key) {
  ncclConfig_t config = state_->config();
  const auto make = [&](ncclComm_t* made) {
    ncclResult_t result = ncclSuccess;
    comm_->issue("split", [&](ncclComm_t comm) {
      result = ncclCommSplit(comm, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, made, &config);
      return result;
    });
    return result == ncclInProgress ? ncclSuccess : result;
  };
  auto comm = state_->make_comm(make);
  if (colour < 0) return nullptr;
  int rank = 0, size = 0;
  comm->issue("split", [&](ncclComm_t made) { return ncclCommUserRank(made, &rank); });
  comm->issue("split", [&](ncclComm_t made) { return ncclCommCount(made, &size); });
  return make_communicator(state_, std::move(comm), rank, size);
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<State> state, std::shared_ptr<Comm> comm, int rank,
                                                int size) {
  return std::make_unique<NcclCommunicator>(std::move(state), std::move(comm), rank, size);
}

}  // namespace moe::nccl
