#include "moe/measure/ops/rank_ops.h"

#include <algorithm>

#include "moe/device/cpu/cores.h"
#include "moe/device/device.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe::measure {
namespace {

bool sums(const OpCase& c) { return facts_of(c.op).sums; }

// Returns a value that tells rank and place. It is small where it is summed, so that sums are exact; of 16 bits
// bfloat16 is exact up to 256.
int64_t value_at(const OpCase& c, int rank, int64_t i) {
  if (bytes_of(c.dtype) > 2) return sums(c) ? (rank * 7 + i) % 251 : rank * 1000 + i % 997;
  if (!sums(c)) return (rank * 31 + i) % 251;
  return rank < 64 ? (rank * 3 + i) % 4 : 0;
}

}  // namespace

RankOps::RankOps(Communicator& world, const Place& place)
    : world_(world.split(0, world.rank())),
      device_(make_device(place.device, place.gpu, place.threads)),
      layer_device_(place.device == DeviceKind::cuda ? make_cuda_layer_device() : nullptr),
      stream_(device_->make_stream("op")),
      gate_(*stream_),
      start_(device_->make_event()),
      op_start_(device_->make_event()),
      end_(device_->make_event()),
      rank_(world_->rank()),
      host_threads_(place.host_threads) {}

int RankOps::group_of(const OpCase& c) const { return c.group.first_of(rank_); }

int RankOps::world_rank(int64_t member, const OpCase& c) const {
  return c.group.first_of(rank_) + static_cast<int>(member) * c.group.step;
}

Communicator* RankOps::group(const RankGroup& ranks) {
  const auto [place, fresh] = groups_.try_emplace(ranks);
  const int first = ranks.first_of(rank_), last = first + (ranks.ranks - 1) * ranks.step;
  if (fresh) place->second = world_->split(last < world_->size() ? first : -1, rank_);
  return place->second.get();
}

bool RankOps::make(Tensor& tensor, int64_t elements, DType dtype) const {
  const int64_t has = tensor.view().data() != nullptr ? tensor.view().elements() : 0;
  if (has >= elements && tensor.view().dtype() == dtype) return false;
  tensor = Tensor();  // before another is made
  if (elements > 0) tensor = Tensor({elements}, dtype, math().memory());
  return true;
}

// Makes buffers ready. They only grow, and what is sent stays: to fill them takes longer than most ops.
void RankOps::prepare(const OpCase& c, bool for_check) {
  if (c.shape) return prepare_module(c);
  if (c.network != Network::none) group_ = group(c.group);
  const int64_t size = c.group.ranks;
  elements_ = std::max<int64_t>(1, c.real_elements / size) * size;  // every block alike
  const int64_t n = c.real_dim > 0 ? c.real_dim * c.real_dim : elements_;
  // A paced GEMM is a proxy: of 16 bits a CPU has none.
  const DType dtype = c.real_dim > 0 && c.modelled_s > 0 ? sums_type(c.dtype) : c.dtype;
  const bool sends_anew = make(send_, n, dtype), receives_anew = make(receive_, n, dtype);
  const bool third_anew = make(third_, c.real_dim > 0 ? n : 0, dtype);
  const bool stays = sent_sums_ == sums(c);
  sent_sums_ = sums(c);
  const auto sent = [&](int64_t i) { return static_cast<double>(value_at(c, rank_, i)); };
  if (sends_anew || !stays) fill(send_, sent);
  if (receives_anew || for_check)
    fill(receive_.view().part(0, {n}), [&](int64_t i) { return c.op == Op::allreduce ? sent(i) : 0.0; });
  if (c.real_dim > 0 && third_anew) fill(third_, [](int64_t i) { return 1e-3 * static_cast<double>(i * 7 % 13 - 6); });
}

template <class Value>
void RankOps::fill(TensorView tensor, Value value) const {
  const HostCopy there(tensor, math().memory());
  const cpu::UseThreads threads(host_threads_);
  with_element(there.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(tensor.elements(), int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) there.view().as<T>()[i] = static_cast<T>(value(i));
    });
  });
  there.send();
}

// Makes each module of a series once, on the CPU.
void RankOps::prepare_module(const OpCase& c) {
  if (series_ != c.series()) modules_.clear();
  series_ = c.series();
  auto& module = modules_[c.key()];
  if (module == nullptr) module = make_module_run(c.module, *c.shape);
  module_ = module.get();
  module_->prepare(c.phase);
}

void RankOps::begin(const OpCase& c, int iterations, const Begin& how) {
  world_->barrier({*stream_, {}, "start of an op"});
  how.beside != nullptr ? gate_.close_with(how.beside->gate_) : gate_.close(iterations + how.more);
  stream_->mark(*start_);
  for (int i = 0; i < iterations; ++i) {
    if (how.paced && c.modelled_s > 0) stream_->mark(*op_start_);
    enqueue(c, {how.paced ? c.modelled_s * c.dilation : 0, &overruns_});
  }
  stream_->record(*end_);
}

void RankOps::enqueue(const OpCase& c, Pace pace) {
  if (c.shape) return stream_->launch([this, phase = c.phase](void*) { module_->run(phase); });
  if (c.network != Network::none) return communicate(c, pace);
  stream_->launch([this, n = c.real_dim](void* native) {
    const auto square = [n](const Tensor& t) { return matrix(t.view().part(0, {n, n})); };
    math().use(native);
    math().gemm(square(send_), square(third_), square(receive_), Into::overwrite, {.fastest = true});
  });
  stream_->hold(*op_start_, pace);
}

void RankOps::communicate(const OpCase& c, Pace pace) {
  if (group_ == nullptr) return;
  const int64_t block = elements_ / group_->size(), block_bytes = block * bytes_of(c.dtype);
  const void* send = send_.view().data();
  void* receive = receive_.view().data();
  const CommCall call{*stream_, pace, name_of(c.op)};
  if (c.op == Op::alltoall) return group_->alltoall(send, receive, block_bytes, call);
  if (c.op == Op::allgather) return group_->allgather(send, receive, block_bytes, call);
  if (c.op == Op::reducescatter) return group_->reducescatter(send, receive, block, c.dtype, call);
  if (c.op == Op::allreduce) return group_->allreduce(receive, elements_, c.dtype, call);
  require<WrongResult>(c.op == Op::sendrecv, "{}: expected an operation of ranks", name_of(c.op));
  if (group_->rank() == 0)
    group_->send(send, elements_ * bytes_of(c.dtype), 1, call);
  else
    group_->receive(receive, elements_ * bytes_of(c.dtype), 0, call);
}

template <class T>
WrongElements RankOps::check_collective(const OpCase& c) const {
  const int64_t size = group_->size(), block = elements_ / size, mine = group_->rank();
  const int64_t n = c.op == Op::reducescatter ? block : elements_;
  if (c.op == Op::sendrecv && mine == 0) return {};
  const HostCopy received(receive_.view().part(0, {elements_}), math().memory());
  const auto expected_at = [&](int64_t i) {
    const int64_t at = c.op == Op::reducescatter ? mine * block + i : i;
    if (c.op == Op::alltoall) return value_at(c, world_rank(i / block, c), mine * block + i % block);
    if (c.op == Op::sendrecv) return value_at(c, world_rank(0, c), i);
    if (c.op == Op::allgather) return value_at(c, world_rank(i / block, c), i % block);
    int64_t sum = 0;
    for (int64_t r = 0; r < size; ++r) sum += value_at(c, world_rank(r, c), at);
    return sum;
  };
  std::atomic<int64_t> count = 0, first = n;
  const cpu::UseThreads threads(host_threads_);
  parallel_for(n, int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (received.view().template as<T>()[i] == static_cast<T>(expected_at(i))) continue;
      ++count;
      for (int64_t before = first; i < before && !first.compare_exchange_weak(before, i);) {
      }
    }
  });
  if (count == 0) return {};
  return {count, fmt::format("rank {}, element {}: found {}, expected {}", rank_, first.load(),
                             received.view().template as<T>()[first], expected_at(first))};
}

WrongElements RankOps::check_gemm(int64_t dim) const {
  MemorySpace& memory = math().memory();
  const auto product = [&](const Tensor& t) { return HostCopy(t.view().part(0, {dim * dim}), memory); };
  const HostCopy a = product(send_), b = product(third_), out = product(receive_);
  const auto square = [&](const HostCopy& t) { return matrix(t.view().part(0, {dim, dim})); };
  WrongElements wrong = wrong_products(square(a), square(b), square(out), receive_.view().dtype());
  if (wrong.count > 0) wrong.first = fmt::format("rank {}, {}", rank_, wrong.first);
  return wrong;
}

WrongElements RankOps::check(const OpCase& c) const {
  if (c.shape) {
    std::string wrong = repeated_run_error(*module_, c.phase);
    if (wrong.empty()) wrong = gradient_error(c.module);
    return {wrong.empty() ? 0 : 1, wrong};
  }
  if (c.real_dim > 0) return check_gemm(c.real_dim);
  if (group_ == nullptr) return {};
  return with_element(sums_type(c.dtype), [&](auto zero) { return check_collective<decltype(zero)>(c); });
}

}  // namespace moe::measure
