#include "moe/comm/nccl/nccl_world.h"

#include <cstring>

#include "moe/base/check.h"
#include "moe/comm/nccl/detail/nccl_state.h"

extern char** environ;

namespace moe {
namespace {

std::string make_id() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  require<RankFailure>(result == ncclSuccess, "NCCL's unique id: {}", ncclGetErrorString(result));
  return {id.internal, sizeof id.internal};
}

/// Returns rank 0's id on all ranks.
ncclUniqueId shared_id(const NcclOptions& options) {
  ncclUniqueId id{};
  std::string text;
  if (options.rank == 0) {
    text = make_id();
    if (options.size > 1) options.set("nccl/id", text);
  } else {
    text = options.get("nccl/id");
  }
  require_equal<RankFailure>(text.size(), sizeof id.internal, "bytes of NCCL's unique id");
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

std::vector<std::pair<std::string, std::string>> settings_of(const nccl::State& state) {
  int version = 0;
  ncclGetVersion(&version);
  const auto ctas = [](int count) { return count > 0 ? std::to_string(count) : std::string("default"); };
  std::vector<std::pair<std::string, std::string>> settings{
      {"nccl_version", fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)},
      {"nccl_alltoall", state.alltoall() ? "ncclAlltoAll" : "grouped send and receive"},
      {"nccl_min_ctas", ctas(state.options().min_ctas)},
      {"nccl_max_ctas", ctas(state.options().max_ctas)}};
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const size_t equals = text.find('=');
    if (!text.starts_with("NCCL_") && !text.starts_with("CUDA_DEVICE_MAX_CONNECTIONS")) continue;
    settings.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return settings;
}

class ConnectedWorld final : public World {
 public:
  explicit ConnectedWorld(NcclOptions options) : state_(std::make_shared<nccl::State>(std::move(options))) {
    const NcclOptions& ours = state_->options();
    const ncclUniqueId id = shared_id(ours);
    ncclConfig_t config = state_->config();
    comm_ = state_->make_comm(
        [&](ncclComm_t* made) { return ncclCommInitRankConfig(made, ours.size, id, ours.rank, &config); });
    settings_ = settings_of(*state_);
  }

  std::string_view backend() const override { return "nccl"; }
  int ranks() const override { return state_->options().size; }
  std::vector<int> local_ranks() const override { return {state_->options().rank}; }
  const WorldTopology& topology() const override { return state_->options().topology; }
  std::vector<std::pair<std::string, std::string>> settings() const override { return settings_; }

  std::unique_ptr<Communicator> communicator(int rank) override {
    require_equal<BadInput>(rank, state_->options().rank, "rank of this process");
    return nccl::make_communicator(state_, comm_, rank, ranks());
  }

  void run(const std::function<void(int rank)>& body) override {
    try {
      body(state_->options().rank);
    } catch (const std::exception& error) {
      state_->abort(fmt::format("{} died: {}", state_->name(), error.what()));
      throw;
    }
  }

 private:
  const std::shared_ptr<nccl::State> state_;
  std::shared_ptr<nccl::Comm> comm_;
  std::vector<std::pair<std::string, std::string>> settings_;
};

}  // namespace

std::unique_ptr<World> make_nccl_world(NcclOptions options) {
  require<BadInput>(options.rank >= 0 && options.rank < options.size, "rank {} of a world of {}", options.rank,
                    options.size);
  require<BadInput>(options.size == 1 || (options.get && options.set), "a world of {} ranks without a place to meet",
                    options.size);
  return std::make_unique<ConnectedWorld>(std::move(options));
}

}  // namespace moe
