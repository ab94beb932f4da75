#include "moe/measure/ops/rank_ops.h"

#include <algorithm>
#include <cstring>

#include "moe/base/check.h"
#include "moe/device/cpu/cores.h"
#include "moe/device/device.h"
#include "moe/measure/layers/proxy.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe::measure {
namespace {

constexpr int kLaunchesPerPhase = 2;

bool sums(const OpCase& c) { return facts_of(c.op).sums; }

// Returns a test value that depends on rank and position. Values are small if they are summed, so that sums are exact:
// in 16-bit types up to 256, the limit of bfloat16.
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
  tensor = Tensor();  // freed before the new one is allocated
  if (elements > 0) tensor = Tensor({elements}, dtype, math().memory());
  return true;
}

// Prepares the buffers. They only grow and keep their data between cases, because filling takes longer than most ops.
void RankOps::prepare(const OpCase& c, bool for_check) {
  if (c.shape) return prepare_module(c);
  if (c.network != Network::none) group_ = group(c.group);
  if (c.phases.count > 0) prepare_phases(c);
  const int64_t size = c.phases.count > 0 ? c.phases.count * c.phases.node.ranks : c.group.ranks;
  elements_ = std::max<int64_t>(1, c.real_elements / size) * size;  // all blocks have equal sizes
  const int64_t n = c.real_dim > 0 ? c.real_dim * c.real_dim : elements_;
  // The GEMM under a pace has float32 instead of a 16-bit type, which CPUs don't support.
  const DType dtype = c.real_dim > 0 && c.modelled_s > 0 ? accumulation_type(c.dtype) : c.dtype;
  const bool sends_anew = make(send_, n, dtype), receives_anew = make(receive_, n, dtype);
  const bool third_anew = make(third_, c.real_dim > 0 || c.phases.count > 0 ? n : 0, dtype);
  const bool stays = sent_sums_ == sums(c);
  sent_sums_ = sums(c);
  const auto sent = [&](int64_t i) { return static_cast<double>(value_at(c, rank_, i)); };
  if (sends_anew || !stays) fill(send_, sent);
  if (receives_anew || for_check)
    fill(receive_.view().part(0, {n}), [&](int64_t i) { return c.op == Op::allreduce ? sent(i) : 0.0; });
  if (c.is_dispatched()) prepare_dispatcher(c);
  if (c.op == Op::host_copy) prepare_host(c);
  if (c.phases.count > 0 && for_check) fill(third_.view().part(0, {n}), [](int64_t) { return 0.0; });
  if (c.real_dim > 0 && third_anew) fill(third_, [](int64_t i) { return 1e-3 * static_cast<double>(i * 7 % 13 - 6); });
}

void RankOps::prepare_host(const OpCase& c) {
  const int64_t bytes = elements_ * bytes_of(c.dtype);
  if (host_.data() == nullptr || host_.bytes() < bytes) host_ = device_->make_host_memory(bytes);
  const HostCopy values(TensorView(host_.data(), {elements_}, c.dtype), cpu_memory());
  with_element(values.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < elements_; ++i) values.view().as<T>()[i] = static_cast<T>(value_at(c, rank_, i));
  });
  values.send();
}

void RankOps::prepare_phases(const OpCase& c) {
  node_ = group(c.phases.node);
  if (gathers_) return;
  gathers_ = device_->make_stream("gathers");
  exchanged_ = device_->make_event();
  gathered_ = device_->make_event();
}

// Creates the dispatcher of a case. All ranks of the group do so in the same cases.
void RankOps::prepare_dispatcher(const OpCase& c) {
  const int64_t bytes = elements_ * bytes_of(c.dtype);
  if (group_ == nullptr || (dispatched_.series == c.series() && dispatched_.max_bytes >= bytes)) return;
  dispatched_ = {make_dispatcher(c.algorithm, {.ep = *group_,
                                               .ranks_per_node = c.ranks_per_node,
                                               .rank = rank_,
                                               .max_bytes = bytes,
                                               .memory = math().memory()}),
                 c.series(), bytes};
}

template <class Value>
void RankOps::fill(TensorView tensor, Value value) const {
  const HostCopy there(tensor, math().memory());
  const cpu::ThreadCountScope threads(host_threads_);
  with_element(there.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(tensor.elements(), int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) there.view().as<T>()[i] = static_cast<T>(value(i));
    });
  });
  there.send();
}

// Creates the module of a case, on the CPU; modules are kept for the whole series.
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
  const int launches = iterations * std::max(1, kLaunchesPerPhase * c.phases.count);
  if (how.beside != nullptr)
    gate_.close_with(how.beside->gate_);
  else
    gate_.close(launches + how.more);
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
  if (c.op == Op::host_copy) {
    stream_->copy({.to = receive_.view().data(), .from = host_.data(), .bytes = elements_ * bytes_of(c.dtype)});
    return stream_->hold(*op_start_, pace);
  }
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
  if (c.op == Op::saa) return communicate_in_phases(c, pace);
  if (c.is_dispatched()) {
    const std::vector<int64_t> blocks(group_->size(), block_bytes);
    return dispatched_.dispatcher->exchange({send, blocks, receive, blocks}, call);
  }
  if (c.op == Op::alltoall || c.op == Op::a2a_ep_esp) return group_->alltoall(send, receive, block_bytes, call);
  if (c.op == Op::allgather) return group_->allgather(send, receive, block_bytes, call);
  if (c.op == Op::reducescatter) return group_->reducescatter(send, receive, block, c.dtype, call);
  if (c.op == Op::allreduce) return group_->allreduce(receive, elements_, c.dtype, call);
  require<WrongResult>(c.op == Op::sendrecv, "{}: expected an operation of ranks", name_of(c.op));
  if (group_->rank() == 0)
    group_->send(send, elements_ * bytes_of(c.dtype), 1, call);
  else
    group_->receive(receive, elements_ * bytes_of(c.dtype), 0, call);
}

void RankOps::communicate_in_phases(const OpCase& c, Pace pace) {
  const int ranks = c.phases.node.ranks, nodes = group_->size() / ranks, node = group_->rank() / ranks;
  const int64_t slice = elements_ / c.phases.count, block_bytes = slice / ranks * bytes_of(c.dtype);
  const auto paced = [&](double seconds) {
    Pace part = pace;
    if (c.modelled_s > 0) part.at_least_s *= seconds / c.modelled_s;
    return part;
  };
  for (int phase = 0; phase < c.phases.count; ++phase) {
    const auto blocks_of = [&](int other) {
      std::vector<int64_t> bytes(group_->size());
      std::fill_n(bytes.begin() + int64_t{other} * ranks, ranks, block_bytes);
      return bytes;
    };
    const TensorView out = send_.view().part(phase * slice, {slice}), in = receive_.view().part(phase * slice, {slice}),
                     wide = third_.view().part(phase * slice, {slice});
    group_->alltoallv(out.data(), blocks_of((node + phase) % nodes), in.data(), blocks_of(source_node(c, phase)),
                      {*stream_, paced(c.phases.exchange_s), name_of(c.op)});
    stream_->record(*exchanged_);
    gathers_->wait(*exchanged_);
    node_->allgather(in.data(), wide.data(), block_bytes, {*gathers_, paced(c.phases.gather_s), name_of(c.op)});
  }
  gathers_->record(*gathered_);
  stream_->wait(*gathered_);
}

int RankOps::source_node(const OpCase& c, int64_t phase) const {
  const int64_t nodes = group_->size() / c.phases.node.ranks, node = group_->rank() / c.phases.node.ranks;
  return static_cast<int>((node + nodes - phase % nodes) % nodes);
}

template <class T, class Value>
WrongElements RankOps::check_values(const Tensor& tensor, int64_t elements, Value expected_at) const {
  const HostCopy received(tensor.view().part(0, {elements}), math().memory());
  std::atomic<int64_t> count = 0, first = elements;
  const cpu::ThreadCountScope threads(host_threads_);
  parallel_for(elements, int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
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

// Checks the result of an saa. A phase's slice has one block for each rank of one node; the first of them is gathered.
template <class T>
WrongElements RankOps::check_phases(const OpCase& c) const {
  const int64_t ranks = c.phases.node.ranks, slice = elements_ / c.phases.count, block = slice / ranks;
  const auto sent = [&](int64_t phase, int64_t from, int64_t to, int64_t at) {
    return value_at(c, world_rank(source_node(c, static_cast<int>(phase)) * ranks + from, c),
                    (phase * ranks + to) * block + at);
  };
  WrongElements wrong = check_values<T>(receive_, elements_, [&](int64_t i) {
    return sent(i / slice, i % slice / block, group_->rank() % ranks, i % block);
  });
  const WrongElements wrong_gathered =
      check_values<T>(third_, elements_, [&](int64_t i) { return sent(i / slice, 0, i % slice / block, i % block); });
  if (wrong.count == 0) wrong.first = wrong_gathered.first;
  wrong.count += wrong_gathered.count;
  return wrong;
}

template <class T>
WrongElements RankOps::check_collective(const OpCase& c) const {
  if (c.op == Op::saa) return check_phases<T>(c);
  const int64_t size = group_->size(), block = elements_ / size, mine = group_->rank();
  const int64_t n = c.op == Op::reducescatter ? block : elements_;
  if (c.op == Op::sendrecv && mine == 0) return {};
  return check_values<T>(receive_, n, [&](int64_t i) {
    const int64_t at = c.op == Op::reducescatter ? mine * block + i : i;
    if (c.op == Op::alltoall || c.op == Op::a2a_ep_esp)
      return value_at(c, world_rank(i / block, c), mine * block + i % block);
    if (c.op == Op::sendrecv) return value_at(c, world_rank(0, c), i);
    if (c.op == Op::allgather) return value_at(c, world_rank(i / block, c), i % block);
    int64_t sum = 0;
    for (int64_t r = 0; r < size; ++r) sum += value_at(c, world_rank(r, c), at);
    return sum;
  });
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

template <class T>
WrongElements RankOps::check_host_copy(const OpCase& c) const {
  return check_values<T>(receive_, elements_, [&](int64_t i) { return value_at(c, rank_, i); });
}

WrongElements RankOps::check(const OpCase& c) const {
  if (c.shape) {
    std::string wrong = repeated_run_error(*module_, c.phase);
    if (wrong.empty()) wrong = gradient_error(c.module);
    return {wrong.empty() ? 0 : 1, wrong};
  }
  if (c.real_dim > 0) return check_gemm(c.real_dim);
  if (c.op == Op::host_copy)
    return with_element(accumulation_type(c.dtype), [&](auto zero) { return check_host_copy<decltype(zero)>(c); });
  if (group_ == nullptr) return {};
  return with_element(accumulation_type(c.dtype), [&](auto zero) { return check_collective<decltype(zero)>(c); });
}

namespace {

constexpr double kBarrierS = 500e-6, kLaunchS = 50e-6, kMaxS = 20e-3;

}  // namespace

double StartGate::seconds_for(int launches) { return std::min(kBarrierS + kLaunchS * launches, kMaxS); }

void StartGate::close(int launches) {
  if (!lane_.calls_work_immediately()) return;
  seconds_ = seconds_for(launches);
  lane_.mark(*closed_);
  lane_.hold(*closed_, {.at_least_s = seconds_});
}

void StartGate::close_with(StartGate& first) {
  if (!lane_.calls_work_immediately()) return;
  lane_.wait(*first.closed_);
  lane_.hold(*first.closed_, {.at_least_s = first.seconds_});
}

struct OpRunner::Command {
  enum class Kind : int32_t { run, check, beside, both, end } kind = Kind::run;
  int32_t iterations = 1, by_iterations = 0;
  uint64_t op = 0, by = 0;
};

OpRunner::OpRunner(const BenchRanks& ranks, const std::vector<OpCase>& cases, double timeout_s)
    : ranks_(ranks), cases_(cases) {
  // Without processes, the ranks are those of the proxy.
  if (!ranks_.processes) threads_.emplace(kProxyNodes * kProxyRanksPerNode, timeout_s);
  local_ranks_ = world().local_ranks();
  ops_.resize(local_ranks_.size());
  beside_.resize(local_ranks_.size());
  // Buffers of GPUs are large, so all cores of the host, divided among its ranks, fill and check them.
  const int here = ranks_.processes ? world().topology().ranks_per_node : static_cast<int>(local_ranks_.size());
  const bool on_gpu = ranks_.device == DeviceKind::cuda;
  const int host_threads = on_gpu ? std::max(1, cpu::usable_core_count() / here) : ranks_.threads;
  world().run([&](int rank) {
    const RankOps::Place where{ranks_.device, world().topology().local_rank, ranks_.threads, host_threads};
    for (auto* ops : {&ops_, &beside_})
      (*ops)[place(rank)] = std::make_unique<RankOps>(*world().communicator(rank), where);
  });
}

OpRunner::~OpRunner() = default;

OpSample OpRunner::run(size_t op, int iterations, bool check) {
  Command command;
  command.kind = check ? Command::Kind::check : Command::Kind::run;
  command.iterations = check ? 1 : iterations;
  command.op = op;
  return order(command);
}

OpSample OpRunner::run_beside(size_t op, int iterations, size_t by, int by_iterations) {
  return order({Command::Kind::beside, iterations, by_iterations, op, by});
}

OpSample OpRunner::run_both(size_t op, int iterations, size_t other, int other_iterations) {
  return order({Command::Kind::both, iterations, other_iterations, op, other});
}

OpSample OpRunner::order(const Command& command) {
  send_command(command);
  return perform(command);
}

void OpRunner::release() {
  Command command;
  command.kind = Command::Kind::end;
  send_command(command);
}

void OpRunner::send_command(const Command& command) {
  if (ranks_.processes) broadcast(world(), std::string(reinterpret_cast<const char*>(&command), sizeof command));
}

void OpRunner::follow() {
  while (true) {
    const std::string told = broadcast(world(), {});
    require_equal<RankFailure>(told.size(), sizeof(Command), "bytes of a command of rank 0");
    Command command;
    std::memcpy(&command, told.data(), sizeof command);
    if (command.kind == Command::Kind::end) return;
    perform(command);
  }
}

// Runs a command on a rank. Sets `times` to start, end, overruns and number of wrong elements.
void OpRunner::perform_on(int rank, const Command& command, std::vector<double>& times, std::string& wrong) {
  RankOps& ops = *ops_[place(rank)];
  const OpCase& c = cases_.at(command.op);
  ops.prepare(c, command.kind == Command::Kind::check);
  const bool two = command.kind == Command::Kind::beside || command.kind == Command::Kind::both;
  RankOps& beside = *beside_[place(rank)];
  if (two) {
    const OpCase& by = cases_.at(command.by);
    beside.prepare(by, false);
    ops.begin(c, command.iterations, {.more = command.by_iterations});
    beside.begin(by, command.by_iterations, {.beside = &ops});
    ops.finish();
    beside.finish();
  } else {
    ops.begin(c, command.iterations, {.paced = command.kind != Command::Kind::check});
    ops.finish();
  }
  times = {ops.start_s(), ops.end_s(), static_cast<double>(ops.take_overruns()), 0};
  if (command.kind == Command::Kind::both) times[1] = std::max(times[1], beside.end_s());
  if (command.kind != Command::Kind::check) return;
  WrongElements found = ops.check(c);
  times.back() = static_cast<double>(found.count);
  wrong = std::move(found.first);
}

OpSample OpRunner::perform(const Command& command) {
  const OpCase& c = cases_.at(command.op);
  std::vector<std::vector<double>> times(local_ranks_.size());
  std::vector<std::string> wrong(local_ranks_.size());
  world().run([&](int rank) { perform_on(rank, command, times[place(rank)], wrong[place(rank)]); });
  // Barriers release ranks one after the other, so a collective's time starts with the last rank of its group. Only
  // threads share a clock; for processes, more iterations make the difference negligible.
  if (!ranks_.processes)
    for (size_t r = 0; r < times.size(); ++r)
      for (size_t other = 0; other < times.size(); ++other)
        if (ops_[other]->group_of(c) == ops_[r]->group_of(c)) times[r][0] = std::max(times[r][0], times[other][0]);
  const int iterations = command.kind == Command::Kind::both ? 1 : command.iterations;
  OpSample sample;
  for (const auto& rank : gather(world(), times)) {
    sample.seconds.push_back((rank.at(1) - rank.at(0)) / iterations / c.dilation);
    sample.overruns += static_cast<int64_t>(rank.at(2));
    sample.wrong.count += static_cast<int64_t>(rank.at(3));
  }
  if (command.kind != Command::Kind::check) return sample;
  for (std::string& rank : gather(world(), std::move(wrong)))
    if (sample.wrong.first.empty()) sample.wrong.first = std::move(rank);
  return sample;
}

}  // namespace moe::measure
