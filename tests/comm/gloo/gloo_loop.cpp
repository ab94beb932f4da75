// One rank that runs collectives on two lanes until something ends it: gloo_loop TIMEOUT [JOB [VERSION [START]]]. Its
// own kinds of failure come by signal: SIGUSR1 throws from its body, SIGUSR2 hangs it, SIGHUP aborts, SIGALRM makes it
// disagree. SIGTERM ends all ranks well.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "moe/base/check.h"
#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/store/store.h"

namespace moe {
namespace {

std::atomic<int> told{0};  // the last signal

constexpr int64_t kElements = 20000;

/// One round: an alltoall beside an allreduce. Returns whether some rank was told to end.
bool round_of(Communicator& first, Communicator& second, Stream& one, Stream& two) {
  const auto ranks = static_cast<size_t>(first.size());
  std::vector<float> send(ranks * kElements, 1.0F), received(send.size()), sums(kElements, 1.0F);
  sums.front() = told == SIGTERM ? 1.0F : 0.0F;
  for (int i = 1; i <= 2; ++i) {
    const std::string_view task = i == 1 ? "backward combine 1/2 of layer 0" : "backward combine 2/2 of layer 0";
    first.alltoall(send.data(), received.data(), kElements * int64_t{sizeof(float)}, {one, {}, task});
  }
  second.allreduce(sums.data(), kElements, DType::float32, {two, {}, "gradients of layer 0"});
  one.synchronize();
  two.synchronize();
  for (size_t i = 1; i < sums.size(); ++i)
    require<WrongResult>(sums[i] == static_cast<float>(ranks), "element {}: {} of {} ranks", i, sums[i], ranks);
  return sums.front() > 0;
}

void loop(Communicator& world) {
  const auto first = world.split(0, 0), second = world.split(0, 0);
  const auto device = make_cpu_device();
  const auto one = device->make_stream("inter"), two = device->make_stream("intra");
  for (int round = 0; !round_of(*first, *second, *one, *two); ++round) {
    if (round == 0 && world.rank() == 0) {
      std::puts("running");
      std::fflush(stdout);
    }
    if (told == SIGUSR1) throw std::runtime_error("no memory for experts");
    if (told == SIGUSR2) std::this_thread::sleep_for(std::chrono::hours(1));
    if (told == SIGHUP) first->abort("had enough");
    if (told == SIGALRM) first->barrier({*one, {}, "another task"});
    if (round % 10 == 0) world.split(world.rank() % 2, 0);
  }
}

}  // namespace
}  // namespace moe

int main(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  moe::store::silence_c10d();
  for (const int number : {SIGUSR1, SIGUSR2, SIGHUP, SIGALRM, SIGTERM})
    std::signal(number, [](int which) { moe::told = which; });
  const auto argument = [&](int i, const char* otherwise) { return std::string(count > i ? arguments[i] : otherwise); };
  // Without LibTorch's static destructors, which take seconds on a busy machine.
  const auto end = [](int code, const char* why) {
    if (code != 0) fmt::print(stderr, "moetune: {}\n", why);
    std::_Exit(code);
  };
  try {
    {
      moe::GlooWorld world(moe::find_launch({}), {argument(3, "1.0"), argument(2, "loop")}, std::stod(argument(1, "5")),
                           std::stod(argument(4, "60")));
      world.run([&](int rank) { moe::loop(*world.communicator(rank)); });
    }
    end(0, "");
  } catch (const moe::RankFailure& error) {
    end(4, error.what());
  } catch (const std::exception& error) {
    end(1, error.what());
  }
}
