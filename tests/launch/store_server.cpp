// The store of a launcher's agent: prints its port, and serves until its standard input ends.
#include <cstdio>
#include <fmt/core.h>

#include "moe/comm/store/store.h"

int main() {
  const moe::store::Server server({"127.0.0.1", 0});
  fmt::print("{}\n", server.address().port);
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
}
