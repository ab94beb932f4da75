#include "moe/comm/world.h"

#include <cstring>
#include <numeric>

#include "moe/base/check.h"

namespace moe {
namespace {

std::vector<std::string> gather_from(Communicator& all, const std::string& mine) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("gather");
  std::vector<int64_t> sizes(all.size());
  const auto size = static_cast<int64_t>(mine.size());
  all.allgather(&size, sizes.data(), sizeof size, {*stream, {}, "gathering sizes"});
  stream->synchronize();
  std::string joined(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})), '\0');
  all.allgatherv(mine.data(), joined.data(), sizes, {*stream, {}, "gathering results"});
  stream->synchronize();
  std::vector<std::string> texts;
  size_t at = 0;
  for (const int64_t each : sizes) {
    texts.push_back(joined.substr(at, static_cast<size_t>(each)));
    at += static_cast<size_t>(each);
  }
  return texts;
}

}  // namespace

bool is_leader(const World& world) { return world.local_ranks().front() == 0; }

std::vector<std::string> gather(World& world, std::vector<std::string> mine) {
  const std::vector<int> here = world.local_ranks();
  require_equal(mine.size(), here.size(), "texts of the ranks of this process");
  if (here.size() == static_cast<size_t>(world.ranks())) return mine;
  require_equal(here.size(), size_t{1}, "ranks in a process that has only some (gather: all or one)");
  std::vector<std::string> texts;
  world.run([&](int rank) { texts = gather_from(*world.communicator(rank), mine.front()); });
  return texts;
}

std::vector<std::vector<double>> gather(World& world, const std::vector<std::vector<double>>& mine) {
  std::vector<std::string> bytes;
  for (const auto& numbers : mine)
    bytes.emplace_back(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  std::vector<std::vector<double>> all;
  for (const std::string& text : gather(world, std::move(bytes))) {
    auto& numbers = all.emplace_back(text.size() / sizeof(double));
    if (!text.empty()) std::memcpy(numbers.data(), text.data(), text.size());
  }
  return all;
}

std::string broadcast(World& world, std::string text) {
  std::vector<std::string> mine(world.local_ranks().size());
  if (is_leader(world)) mine.front() = std::move(text);
  return gather(world, std::move(mine)).front();
}

}  // namespace moe
