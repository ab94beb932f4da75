#include "moe/device/cpu/cores.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

namespace moe {
namespace {

/// What a thread that kept to its share may use, and what a thread that it starts may.
std::vector<int> cores_of_share(int part, int parts) {
  std::vector<int> own, inherited;
  std::thread([&] {
    cpu::restrict_to_share(part, parts);
    own = cpu::usable_cores();
    std::thread([&] { inherited = cpu::usable_cores(); }).join();
  }).join();
  EXPECT_EQ(own, inherited);
  return own;
}

TEST(CoresTest, SharesAreEqualAndCoverAllCores) {
  const std::vector<int> all = cpu::usable_cores();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  const auto cores = static_cast<int>(all.size());
  for (const int parts : {1, 2, 3, cores, 2 * cores, 4 * cores}) {
    std::vector<int> users(all.size(), 0);
    for (int part = 0; part < parts; ++part) {
      const std::vector<int> share = cores_of_share(part, parts);
      ASSERT_FALSE(share.empty());
      EXPECT_LE(share.size(), all.size() / static_cast<size_t>(parts) + 1);
      for (const int core : share) ++users[std::find(all.begin(), all.end(), core) - all.begin()];
    }
    if (parts % cores == 0) {
      EXPECT_EQ(users, std::vector<int>(all.size(), parts / cores)) << parts << " parts";
    } else {
      EXPECT_LE(*std::max_element(users.begin(), users.end()), parts / cores + 1) << parts << " parts";
    }
  }
}

}  // namespace
}  // namespace moe
