// Idea: with `level` = tokens / devices, an expert of p tokens fills floor(p / level) devices. All remainders are items
// smaller than one level, which are packed into the remaining devices by first-fit decreasing. Items that fit nowhere
// are split; because the remainders add up to the remaining room, every device is then filled to the level.
// Invariant: replicas_left_ is the number of places that remain for replicas after every expert has one place.
// Source: Lina (ATC'23), section 5.2; first-fit decreasing: Johnson 1973.
#include "moe/serve/expert_placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr double kSlack = 1.01;  // factor on the level; a smaller excess is not worth another copy of an expert

class Packer {
 public:
  Packer(std::span<const double> popularity, int devices, int max_experts)
      : popularity_(popularity),
        max_experts_(static_cast<size_t>(max_experts)),
        replicas_left_(static_cast<int64_t>(devices) * max_experts - static_cast<int64_t>(popularity.size())),
        level_(std::accumulate(popularity.begin(), popularity.end(), 0.0) / devices),
        load_(static_cast<size_t>(devices)),
        hosted_(static_cast<size_t>(devices)) {}

  ExpertPlacement pack() {
    std::vector<size_t> order(popularity_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t e) { return popularity_[e]; });
    std::vector<Item> items;
    for (const size_t e : order)
      if (popularity_[e] > 0) items.push_back({e, fill_devices(e)});
    std::erase_if(items, [](const Item& item) { return item.tokens <= 0; });
    std::ranges::stable_sort(items, std::greater(), &Item::tokens);
    std::erase_if(items, [&](const Item& item) { return first_fit(item); });
    for (const Item& item : items) split(item);
    for (const size_t e : order)
      if (popularity_[e] <= 0) put(emptiest(), e, 0);
    return placement();
  }

 private:
  struct Item {
    size_t expert;
    double tokens;
  };

  // Gives an expert the devices that it fills alone, and returns the number of its remaining tokens.
  double fill_devices(size_t expert) {
    double left = popularity_[expert];
    bool is_replica = false;
    while (left >= level_ * (1 - 1e-9) && next_empty_ < hosted_.size() && (!is_replica || replicas_left_ > 0)) {
      if (is_replica) --replicas_left_;
      is_replica = true;
      // If there is no place for the remaining tokens, the last device takes them too.
      const bool takes_all = replicas_left_ == 0 || left <= level_ * kSlack;
      put(next_empty_++, expert, takes_all ? left : level_);
      left = takes_all ? 0 : left - level_;
    }
    if (is_replica && left > 0) --replicas_left_;
    return left;
  }

  bool first_fit(const Item& item) {
    for (size_t d = 0; d < hosted_.size(); ++d)
      if (has_place(d) && load_[d] + item.tokens <= level_ * kSlack) {
        put(d, item.expert, item.tokens);
        return true;
      }
    return false;
  }

  void split(const Item& item) {
    for (double left = item.tokens; left > 0;) {
      const size_t d = least_loaded();
      const double room = level_ - load_[d];
      const bool takes_all = replicas_left_ == 0 || room >= left || room <= level_ * (kSlack - 1);
      if (!takes_all) --replicas_left_;
      put(d, item.expert, takes_all ? left : room);
      left = takes_all ? 0 : left - room;
    }
  }

  bool has_place(size_t device) const { return hosted_[device].size() < max_experts_; }
  template <class Key>
  size_t least(Key key) const {
    size_t best = hosted_.size();
    for (size_t d = 0; d < hosted_.size(); ++d)
      if (has_place(d) && (best == hosted_.size() || key(d) < key(best))) best = d;
    return best;
  }
  size_t least_loaded() const {
    return least([&](size_t d) { return load_[d]; });
  }
  size_t emptiest() const {
    return least([&](size_t d) { return std::pair(hosted_[d].size(), load_[d]); });
  }

  void put(size_t device, size_t expert, double tokens) {
    load_[device] += tokens;
    for (Item& item : hosted_[device])
      if (item.expert == expert) {
        item.tokens += tokens;
        return;
      }
    hosted_[device].push_back({expert, tokens});
  }

  ExpertPlacement placement() const {
    ExpertPlacement result;
    for (const std::vector<Item>& items : hosted_) {
      auto& device = result.devices.emplace_back();
      for (const Item& item : items) {
        const double all = popularity_[item.expert];
        device.push_back({static_cast<int>(item.expert), all > 0 ? item.tokens / all : 1});
      }
    }
    return result;
  }

  std::span<const double> popularity_;
  size_t max_experts_, next_empty_ = 0;
  int64_t replicas_left_;
  double level_;
  std::vector<double> load_;
  std::vector<std::vector<Item>> hosted_;
};

// Renumbers the devices of `packed` so that as many devices as possible keep an expert that they have in `home`.
ExpertPlacement prefer_home(ExpertPlacement packed, const ExpertPlacement& home) {
  const size_t devices = packed.devices.size();
  ExpertPlacement result;
  result.devices.resize(devices);
  std::vector<bool> is_taken(devices);
  std::vector<size_t> homeless;
  for (size_t bin = 0; bin < devices; ++bin) {
    size_t found = devices;
    for (const HostedExpert& hosted : packed.devices[bin])
      for (size_t d = 0; d < devices && found == devices; ++d)
        if (!is_taken[d] && home.holds(static_cast<int>(d), hosted.expert)) found = d;
    if (found == devices) {
      homeless.push_back(bin);
      continue;
    }
    is_taken[found] = true;
    result.devices[found] = std::move(packed.devices[bin]);
  }
  size_t next = 0;
  for (const size_t bin : homeless) {
    while (is_taken[next]) ++next;
    result.devices[next++] = std::move(packed.devices[bin]);
  }
  return result;
}

}  // namespace

bool ExpertPlacement::holds(int device, int expert) const {
  return std::ranges::find(devices[device], expert, &HostedExpert::expert) != devices[device].end();
}

ExpertPlacement uniform_placement(int experts, int devices) {
  ExpertPlacement placement;
  placement.devices.resize(devices);
  if (experts >= devices) {
    for (int e = 0; e < experts; ++e) placement.devices[int64_t{e} * devices / experts].push_back({e, 1});
    return placement;
  }
  std::vector<int> replicas(experts);
  for (int d = 0; d < devices; ++d) ++replicas[int64_t{d} * experts / devices];
  for (int d = 0; d < devices; ++d) {
    const auto expert = static_cast<int>(int64_t{d} * experts / devices);
    placement.devices[d].push_back({expert, 1.0 / replicas[expert]});
  }
  return placement;
}

ExpertPlacement place_experts(std::span<const double> popularity, int devices, int max_experts) {
  const auto experts = static_cast<int>(popularity.size());
  for (const double p : popularity)
    require<BadInput>(p >= 0 && std::isfinite(p), "popularity: found {}, expected a number >= 0", p);
  require<BadInput>(experts > 0 && int64_t{devices} * max_experts >= experts,
                    "pack: found {} devices of at most {} experts, expected places for {}", devices, max_experts,
                    experts);
  const ExpertPlacement uniform = uniform_placement(experts, devices);
  if (std::accumulate(popularity.begin(), popularity.end(), 0.0) <= 0) return uniform;
  const ExpertPlacement packed = Packer(popularity, devices, max_experts).pack();
  const bool is_faster = max_tokens(packed, popularity) < max_tokens(uniform, popularity);
  return is_faster ? prefer_home(packed, uniform) : uniform;
}

std::vector<std::vector<int64_t>> split_tokens(const ExpertPlacement& placement, std::span<const int64_t> counts) {
  struct Part {
    double remainder;
    size_t device, place;
  };
  std::vector<std::vector<Part>> parts(counts.size());
  std::vector<int64_t> left(counts.begin(), counts.end());
  std::vector<std::vector<int64_t>> tokens;
  for (size_t d = 0; d < placement.devices.size(); ++d) {
    auto& own = tokens.emplace_back();
    for (size_t i = 0; i < placement.devices[d].size(); ++i) {
      const HostedExpert& hosted = placement.devices[d][i];
      const double exact = hosted.share * static_cast<double>(counts[hosted.expert]);
      own.push_back(std::min(left[hosted.expert], static_cast<int64_t>(exact)));
      left[hosted.expert] -= own.back();
      parts[hosted.expert].push_back({exact - static_cast<double>(own.back()), d, i});
    }
  }
  for (size_t e = 0; e < counts.size(); ++e) {
    std::ranges::stable_sort(parts[e], std::greater(), &Part::remainder);
    for (size_t i = 0; left[e] > 0; i = (i + 1) % parts[e].size(), --left[e])
      ++tokens[parts[e][i].device][parts[e][i].place];
  }
  return tokens;
}

double max_tokens(const ExpertPlacement& placement, std::span<const double> popularity) {
  double most = 0;
  for (const auto& device : placement.devices) {
    double sum = 0;
    for (const HostedExpert& hosted : device) sum += hosted.share * popularity[hosted.expert];
    most = std::max(most, sum);
  }
  return most;
}

std::vector<int> most_popular(std::span<const double> popularity, int count) {
  std::vector<int> experts(popularity.size());
  std::iota(experts.begin(), experts.end(), 0);
  std::ranges::stable_sort(experts, std::greater(), [&](int e) { return popularity[e]; });
  experts.resize(std::min(experts.size(), static_cast<size_t>(count)));
  return experts;
}

}  // namespace moe
