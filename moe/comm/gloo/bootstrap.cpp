#include "moe/comm/gloo/detail/bootstrap.h"

#include <algorithm>
#include <climits>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

#include "moe/comm/gloo/detail/failure_detector.h"
#include "moe/comm/store/socket.h"
#include "moe/device/stream.h"

namespace moe::gloo {
namespace {

constexpr const char* kRefusal = "refusal";
constexpr const char* kParted = "parted";
constexpr const char* kLives = "lives";        // number of lives that rank 0 has begun
constexpr const char* kComplete = "complete";  // key of a life, set once rank 0 has heard from all ranks

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// Returns a name of our machine and its network. The host name is not enough, since machines may share it; nor is the
// boot id, since containers in different network namespaces share it but can't reach each other by loopback.
std::string machine_name() {
  char network[64] = "";
  if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = '\0';
  return fmt::format("{} {} {}", host_name(), first_line("/proc/sys/kernel/random/boot_id"), network);
}

std::string pack_info(const PeerInfo& info) {
  return store::pack({info.version, info.job, info.ranks_per_node, info.host, info.machine});
}

PeerInfo unpack_info(const std::string& packed) {
  const auto texts = store::unpack(packed);
  require_equal<RankFailure>(texts.size(), size_t{5}, "a rank's info: texts");
  return {texts[0], texts[1], texts[2], texts[3], texts[4]};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

/// Returns the words in which two command lines differ, with the flag before them.
std::pair<std::string, std::string> difference(const std::string& one, const std::string& other) {
  std::vector<std::string> a = words_of(one), b = words_of(other);
  const auto [to_a, to_b] = std::ranges::mismatch(a, b);
  auto first = to_a - a.begin();
  while (a.size() > size_t(first) && b.size() > size_t(first) && a.back() == b.back()) a.pop_back(), b.pop_back();
  if (first > 0 && a[size_t(first) - 1].starts_with("--")) --first;
  const auto text = [&](const auto& words) {
    return fmt::format("{}", fmt::join(words.begin() + first, words.end(), " "));
  };
  return {text(a), text(b)};
}

void require_same_job(const std::vector<PeerInfo>& peers, const LaunchNames& names) {
  const PeerInfo& first = peers.front();
  for (size_t rank = 1; rank < peers.size(); ++rank) {
    const PeerInfo& other = peers[rank];
    const auto same = [&](const std::string& theirs, const std::string& zeros, std::string_view what) {
      require<RankFailure>(theirs == zeros, "rank {} on {}: found {} '{}', expected '{}' as on rank 0", rank,
                           other.host, what, theirs, zeros);
    };
    same(other.version, first.version, "version");
    const auto [theirs, zeros] = difference(other.job, first.job);
    same(theirs, zeros, "flags");
    same(other.ranks_per_node, first.ranks_per_node, names.ranks_per_node);
  }
}

/// Debian's hosts file maps a machine's own name to 127.0.1.1, where a server is unreachable from other machines.
std::string why_unreachable(const store::Address& store) {
  if (store.host == "localhost" || store.host.starts_with("127.") || store.host == "::1") return {};
  const std::string address = store::address_towards(store);
  if (!address.starts_with("127.") && address != "::1") return {};
  return fmt::format("; {} is this machine's loopback by its hosts file, expected an address that others reach",
                     store.host);
}

/// Returns the failure of a rank that `launch` started; none if none has failed.
std::optional<std::string> failed_rank(const Launch& launch) {
  return launch.board ? launch.board->failure() : std::nullopt;
}

bool refused(store::Store& store) { return store.check({kRefusal}); }

// Ends the start if not all ranks have set their keys. Rank 0 needn't wait for ranks that let the time-out pass.
[[noreturn]] void fail_to_meet(store::Store& store, const Launch& launch, const std::vector<std::string>& keys,
                               size_t missing, double timeout_s) {
  if (refused(store)) throw RankFailure(store.get(kRefusal));
  if (const auto why = failed_rank(launch)) throw RankFailure(*why);
  const auto parted = rank_keys(kParted, launch.ranks);
  for (size_t rank = missing; rank < keys.size(); ++rank)
    if (!store.check({keys[rank]})) store.set(parted[rank], "");
  throw RankFailure(fmt::format("rank {} did not join the run within {:.1f} s{}", missing, timeout_s,
                                why_unreachable(store.address())));
}

store::Interface choose_interface(const store::Address& store, bool one_machine) {
  const auto all = store::interfaces();
  const auto find = [&](const auto& fits) {
    const auto found = std::ranges::find_if(all, fits);
    return found == all.end() ? store::Interface{} : *found;
  };
  if (const std::string named = environment_variable("GLOO_SOCKET_IFNAME").value_or(""); !named.empty()) {
    std::vector<std::string> names;
    for (const store::Interface& interface : all)
      if (std::ranges::find(names, interface.name) == names.end()) names.push_back(interface.name);
    const store::Interface found = find([&](const store::Interface& interface) { return interface.name == named; });
    require<BadInput>(!found.name.empty(), "GLOO_SOCKET_IFNAME: found '{}', expected one of {} on {}", named,
                      fmt::join(names, " "), host_name());
    return found;
  }
  if (one_machine) return find([](const store::Interface& interface) { return interface.loopback; });
  const std::string address = store::address_towards(store);
  return find([&](const store::Interface& interface) { return interface.address == address; });
}

}  // namespace

PeerInfo own_info(const Launch& launch, const GlooJob& job) {
  return {job.version, job.text, std::to_string(launch.ranks_per_node), host_name(), machine_name()};
}

std::vector<std::string> rank_keys(const std::string& name, int ranks) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < ranks; ++rank) keys.push_back(fmt::format("{}/{}", name, rank));
  return keys;
}

void refuse(store::Store& store, const std::string& why) { store.set_first(kRefusal, why); }

void part(store::Store& store, const Launch& launch) {
  const auto parted = rank_keys(kParted, launch.ranks);
  store.set(parted[launch.rank], "");
  if (launch.rank == 0) store.wait(parted, FailureDetector::kGraceS, [] { return false; });
}

namespace {

/// Brings the ranks together in a store that may hold keys of an earlier start, if a launcher restarts ranks. Idea:
/// each start of rank 0 increments a counter; its value, the "life", prefixes all keys. Invariant: an earlier life may
/// have left anything except an answer to rank 0's newest call, so no rank goes on before rank 0 has heard all answers
/// to that call, and a rank that sees a newer life starts again in it.
class Bootstrap {
 public:
  Bootstrap(std::shared_ptr<store::Store>& store, const Launch& launch, double timeout_s)
      : run_(store), store_(store), launch_(launch), timeout_s_(timeout_s), deadline_s_(now_s() + timeout_s) {}

  std::vector<std::string> exchange(const std::string& ours) {
    while (true) {
      enter();
      if (!join(ours)) continue;
      if (launch_.rank == 0) store_->set(kComplete, "");
      if (launch_.rank == 0 || !wait({kComplete})) return store_->get_all(peers());
      if (!is_superseded()) fail({}, 0);
    }
  }

 private:
  double remaining_s() const { return deadline_s_ - now_s(); }
  bool is_superseded() { return run_->add(kLives, 0) != life_; }
  std::vector<std::string> peers() const { return rank_keys("info", launch_.ranks); }
  std::optional<size_t> wait(const std::vector<std::string>& keys) {
    return store_->wait(keys, remaining_s(),
                        [&] { return is_superseded() || refused(*store_) || failed_rank(launch_); });
  }

  /// Enters the newest life, which rank 0 begins.
  void enter() {
    if (launch_.rank != 0 && run_->wait({kLives}, remaining_s(), [&] { return failed_rank(launch_).has_value(); }))
      fail({}, 0);
    life_ = run_->add(kLives, launch_.rank == 0 ? 1 : 0);
    store_ = run_->substore(fmt::format("life/{}/", life_));
  }

  /// Returns false if this life is over.
  bool join(const std::string& ours) {
    if (refused(*store_) || store_->add(fmt::format("here/{}", launch_.rank), 1) != 1) {
      // This rank's previous process may have taken the place; then rank 0 is restarted too.
      if (launch_.served) store_->wait({"nothing but a new life"}, remaining_s(), [&] { return is_superseded(); });
      if (is_superseded()) return false;
      if (refused(*store_)) throw RankFailure(store_->get(kRefusal));
      fail_duplicate_rank();
    }
    store_->set(fmt::format("info/{}", launch_.rank), ours);
    const auto missing = wait(peers());
    if (missing && !is_superseded()) fail(peers(), *missing);
    if (missing && launch_.rank == 0) fail_duplicate_rank();
    return !missing;
  }

  [[noreturn]] void fail_duplicate_rank() {
    bad_input("rank {} of {}: another process is that rank of this run already", launch_.rank, launch_.ranks);
  }
  [[noreturn]] void fail(const std::vector<std::string>& keys, size_t missing) {
    fail_to_meet(*store_, launch_, keys, missing, timeout_s_);
  }

  const std::shared_ptr<store::Store> run_;
  std::shared_ptr<store::Store>& store_;
  const Launch& launch_;
  const double timeout_s_, deadline_s_;
  int64_t life_ = 0;
};

}  // namespace

std::vector<PeerInfo> bootstrap(std::shared_ptr<store::Store>& store, const Launch& launch, const PeerInfo& ours,
                                double timeout_s) {
  std::vector<PeerInfo> all;
  for (const auto& packed : Bootstrap(store, launch, timeout_s).exchange(pack_info(ours)))
    all.push_back(unpack_info(packed));
  require_same_job(all, launch.names);
  return all;
}

Ranking assign_ranks_by_node(const std::vector<PeerInfo>& peers, int ranks_per_node, const LaunchNames& names) {
  const int ranks = static_cast<int>(peers.size());
  std::vector<std::vector<int>> machines;  // the launcher's ranks, by machine
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& name = peers[rank].machine;
    const auto known =
        std::ranges::find_if(machines, [&](const auto& on) { return peers[on.front()].machine == name; });
    if (known == machines.end())
      machines.push_back({rank});
    else
      known->push_back(rank);
  }

  Ranking ranking{.world_rank = std::vector<int>(peers.size()), .one_machine = machines.size() == 1};
  ranking.ranks_per_node = ranks_per_node > 0 ? ranks_per_node : static_cast<int>(machines.front().size());
  int next = 0;
  std::vector<std::string> held;
  for (const auto& machine : machines) {
    held.push_back(fmt::format("{} holds {}", peers[machine.front()].host, machine.size()));
    for (const int rank : machine) ranking.world_rank[rank] = next++;
  }
  for (const auto& machine : machines) {
    const bool fits = ranks_per_node > 0 ? machine.size() % static_cast<size_t>(ranks_per_node) == 0
                                         : machine.size() == machines.front().size();
    require<BadInput>(fits, "{}: expected {} on each node", fmt::join(held, ", "),
                      ranks_per_node > 0 ? fmt::format("a multiple of {} {}", names.ranks_per_node, ranks_per_node)
                                         : "equally many ranks");
  }
  ranking.nodes = ranks / ranking.ranks_per_node;
  return ranking;
}

void exchange_addresses(store::Store& store, const Launch& launch, const Ranking& ranking, WorldTopology& topology,
                        double timeout_s) {
  const store::Interface ours = choose_interface(store.address(), ranking.one_machine);
  require<BadInput>(!ours.name.empty(), "no interface of {} leads to the store at {}:{}; expected GLOO_SOCKET_IFNAME",
                    host_name(), store.address().host, store.address().port);
  topology.interface = ours.name;
  store.set(fmt::format("address/{}", launch.rank), ours.address);
  const auto keys = rank_keys("address", launch.ranks);
  const auto missing = store.wait(keys, timeout_s, [&] { return refused(store) || failed_rank(launch); });
  if (missing) fail_to_meet(store, launch, keys, *missing, timeout_s);
  const auto addresses = store.get_all(keys);
  topology.addresses.resize(addresses.size());
  for (size_t rank = 0; rank < addresses.size(); ++rank) topology.addresses[ranking.world_rank[rank]] = addresses[rank];
}

}  // namespace moe::gloo
