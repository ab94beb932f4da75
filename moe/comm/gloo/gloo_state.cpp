#include "moe/comm/gloo/detail/gloo_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>
#include <system_error>

namespace moe::gloo {

namespace {

// While it lives, the other ranks see that we wait for the members of a new group.
class Connecting {
 public:
  explicit Connecting(State& state) : state_(state) { ++state_.connecting; }
  ~Connecting() { --state_.connecting; }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

 private:
  State& state_;
};

}  // namespace

void State::close() {
  kept_groups.clear();
  world.reset();
  detector.reset();
  store.reset();
  server.reset();
}

std::shared_ptr<Group> State::make_group(const std::string& name, const std::vector<int>& world_ranks) {
  const auto place = static_cast<int>(std::ranges::find(world_ranks, rank) - world_ranks.begin());
  std::unique_ptr<Mesh> mesh;
  if (world_ranks.size() > 1) {
    const Mesh::Member member{place, static_cast<int>(world_ranks.size()), topology.addresses[rank]};
    const Connecting told(*this);
    try {
      mesh = std::make_unique<Mesh>(Rendezvous{store, "mesh/" + name, timeout_s, [this] { return failed(); }}, member);
    } catch (const std::exception& error) {
      // Unless this rank lacks memory or threads, another rank died, and the detector finds out which.
      const bool ours = dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::system_error*>(&error);
      suspect({fmt::format("rank {} can't connect to the others ({})", rank, store::reason_of(error))},
              ours ? 0 : 1.5 * timeout_s);
      throw RankFailure(fmt::format("rank {} in split: {}", rank, verdict()));
    }
  }
  auto group = std::make_shared<Group>(name, world_ranks, place, std::move(mesh));
  {
    const std::lock_guard lock(mutex);
    std::erase_if(groups, [](const auto& known) { return known.expired(); });
    groups.push_back(group);
    if (aborted) group->abort();
  }
  // A member that destroyed the group before another has connected would break the other's connections.
  run(*group, "split", {}, [&] { group->barrier(); });
  return group;
}

void State::run(Group& group, std::string_view op, std::string_view task, const std::function<void()>& work) {
  const auto fail_in_it = [&] {
    throw RankFailure(fmt::format("rank {} in {}: {}", rank, name_operation(op, task), verdict()));
  };
  if (failed()) fail_in_it();
  group.set_doing(op, task);
  try {
    work();
  } catch (const BrokenExchange& broken) {
    if (broken.end == Mesh::End::closed)
      suspect({fmt::format("rank {} closed its connections", broken.peer), broken.peer}, 0);
    fail_in_it();
  }
  group.set_doing({}, {});
}

std::vector<std::shared_ptr<Group>> State::live_groups() {
  const std::lock_guard lock(mutex);
  std::vector<std::shared_ptr<Group>> found;
  for (const auto& known : groups)
    if (auto group = known.lock()) found.push_back(std::move(group));
  return found;
}

void State::keep_group(std::shared_ptr<Group> group) {
  const std::lock_guard lock(mutex);
  kept_groups.push_back(std::move(group));
}

void State::abort() {
  {
    const std::lock_guard lock(mutex);
    aborted = true;
  }
  for (const auto& group : live_groups()) group->abort();
}

std::vector<FailureDetector::Wait> State::waits() {
  std::vector<FailureDetector::Wait> found;
  if (connecting > 0) found.push_back({&connecting, 0, FailureDetector::kConnecting});
  for (const auto& group : live_groups())
    if (const Progress progress = group->progress(); progress.peer >= 0)
      found.push_back({group.get(), progress.count, progress.peer});
  return found;
}

std::string State::line(const std::string& why) {
  for (const auto& group : live_groups())
    if (const std::string doing = group->doing(); !doing.empty())
      return fmt::format("rank {} in {}: {}", rank, doing, why);
  return fmt::format("rank {} {}: {}", rank, connecting > 0 ? "in split" : "outside of operations", why);
}

bool State::failed() {
  if (detector) return detector->failed();
  const std::lock_guard lock(mutex);
  return reason.has_value();
}

std::string State::verdict() {
  if (detector) return detector->verdict();
  const std::lock_guard lock(mutex);
  return reason.value_or("");
}

void State::fail(const std::string& why) {
  suspect({why}, 0);
  verdict();
}

void State::suspect(const FailureDetector::Failure& failure, double patience_s) {
  if (detector) return detector->suspect(failure, patience_s);
  const std::lock_guard lock(mutex);
  if (!reason) reason = failure.reason;
}

}  // namespace moe::gloo
