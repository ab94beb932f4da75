#include "moe/comm/gloo/gloo_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>
#include <system_error>

namespace moe {

namespace {

// While it lives, others can tell that we wait for somebody.
class Connecting {
 public:
  explicit Connecting(GlooWorld::State& state) : state_(state) { ++state_.connecting; }
  ~Connecting() { --state_.connecting; }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

 private:
  GlooWorld::State& state_;
};

}  // namespace

void GlooWorld::State::close() {
  kept.clear();
  world.reset();
  watch.reset();
  store.reset();
  server.reset();
}

std::shared_ptr<gloo::Group> GlooWorld::State::make_group(const std::string& name,
                                                          const std::vector<int>& world_ranks) {
  const auto place = static_cast<int>(std::ranges::find(world_ranks, rank) - world_ranks.begin());
  std::unique_ptr<gloo::Mesh> mesh;
  if (world_ranks.size() > 1) {
    const gloo::Mesh::Member member{place, static_cast<int>(world_ranks.size()),
                                    topology.addresses[static_cast<size_t>(rank)]};
    const Connecting told(*this);
    try {
      mesh = std::make_unique<gloo::Mesh>(
          gloo::Rendezvous{store, "mesh/" + name, timeout_s, [this] { return failed(); }}, member);
    } catch (const std::exception& error) {
      const std::string_view what = error.what();
      // Where it isn't us who lacks memory or threads, one of the others died, and the watch will find out which.
      const bool ours = dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::system_error*>(&error);
      suspect({fmt::format("rank {} can't connect to the others ({})", rank, what.substr(0, what.find('\n')))},
              ours ? 0 : 1.5 * timeout_s);
      throw RankFailure(fmt::format("rank {} in split: {}", rank, verdict()));
    }
  }
  auto group = std::make_shared<gloo::Group>(name, world_ranks, place, std::move(mesh));
  {
    const std::lock_guard lock(mutex);
    std::erase_if(groups, [](const auto& known) { return known.expired(); });
    groups.push_back(group);
    if (aborted) group->abort();
  }
  // A member that is done with the group before another is connected would break that one's.
  run(*group, "split", {}, [&] { group->barrier(); });
  return group;
}

void GlooWorld::State::run(gloo::Group& group, std::string_view op, std::string_view task,
                           const std::function<void()>& work) {
  const auto fail_in_it = [&] {
    throw RankFailure(fmt::format("rank {} in {}: {}", rank, gloo::name_operation(op, task), verdict()));
  };
  if (failed()) fail_in_it();
  group.set_doing(op, task);
  try {
    work();
  } catch (const gloo::BrokenExchange& broken) {
    if (broken.end == gloo::Mesh::End::closed)
      suspect({fmt::format("rank {} closed its connections", broken.peer), broken.peer}, 0);
    fail_in_it();
  }
  group.set_doing({}, {});
}

std::vector<std::shared_ptr<gloo::Group>> GlooWorld::State::living() {
  const std::lock_guard lock(mutex);
  std::vector<std::shared_ptr<gloo::Group>> found;
  for (const auto& known : groups)
    if (auto group = known.lock()) found.push_back(std::move(group));
  return found;
}

void GlooWorld::State::keep(std::shared_ptr<gloo::Group> group) {
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(group));
}

void GlooWorld::State::abort() {
  {
    const std::lock_guard lock(mutex);
    aborted = true;
  }
  for (const auto& group : living()) group->abort();
}

std::vector<gloo::Watch::Wait> GlooWorld::State::waits() {
  std::vector<gloo::Watch::Wait> found;
  if (connecting > 0) found.push_back({&connecting, 0, gloo::Watch::kConnecting});
  for (const auto& group : living())
    if (const gloo::Progress progress = group->progress(); progress.peer >= 0)
      found.push_back({group.get(), progress.count, progress.peer});
  return found;
}

std::string GlooWorld::State::line(const std::string& why) {
  for (const auto& group : living())
    if (const std::string doing = group->doing(); !doing.empty())
      return fmt::format("rank {} in {}: {}", rank, doing, why);
  return fmt::format("rank {} {}: {}", rank, connecting > 0 ? "in split" : "outside of operations", why);
}

bool GlooWorld::State::failed() {
  if (watch) return watch->failed();
  const std::lock_guard lock(mutex);
  return reason.has_value();
}

std::string GlooWorld::State::verdict() {
  if (watch) return watch->verdict();
  const std::lock_guard lock(mutex);
  return reason.value_or("");
}

void GlooWorld::State::fail(const std::string& why) {
  suspect({why}, 0);
  verdict();
}

void GlooWorld::State::suspect(const gloo::Watch::Failure& failure, double patience_s) {
  if (watch) return watch->suspect(failure, patience_s);
  const std::lock_guard lock(mutex);
  if (!reason) reason = failure.reason;
}

}  // namespace moe
