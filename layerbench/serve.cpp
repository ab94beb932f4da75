#include "layerbench/serve.h"

#include <algorithm>
#include <cstring>

#include "commands/shared/record_files.h"
#include "commands/shared/run/layer_records.h"
#include "commands/shared/run/layer_run.h"
#include "commands/shared/run/op_records.h"
#include "commands/shared/sweep.h"
#include "layerbench/layerbench.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/statistics.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/device/stream.h"
#include "moe/measure/layers/serve_bench.h"
#include "moe/record/record_json.h"

namespace moe::layerbench {
namespace {

constexpr int64_t kEmulatedTokens = 64;  // most tokens that a rank emulates; each represents several routed alike

// Returns the number of tokens that one token of the emulation represents.
int64_t weight_of(const LayerShape& layer) {
  const int64_t all = layer.batch * layer.seq;
  int64_t weight = (all + kEmulatedTokens - 1) / kEmulatedTokens;
  while (all % weight != 0) ++weight;
  return weight;
}

double seconds_of(const std::function<void()>& work) {
  constexpr int kTimes = 5;
  std::vector<double> seconds;
  for (int i = 0; i < kTimes; ++i) {
    const double begin_s = now_s();
    work();
    seconds.push_back(now_s() - begin_s);
  }
  return median(seconds);
}

class ServeBench {
 public:
  ServeBench(const LayerbenchOptions& options, World* processes)
      : options_(options),
        target_(commands::target_of(options.selection.cluster, commands::ranks_of(options, processes))),
        variants_(commands::chosen_variants(options.serve)),
        served_(commands::served_case(request(), target_.cluster)),
        writer_(target_.open_records(commands::records_path(options.out, "layerbench", target_.file_name()),
                                     options.invocation, {options.serve.routing})) {
    commands::broadcast_finished_cases(target_, writer_);
    setup_ = commands::serving_setup(options.serve);
    const LayerShape& layer = served_.shape.layer;
    if (target_.emulated && options.serve.routing.empty()) setup_.weight = weight_of(layer);
    const int64_t tokens = layer.batch * layer.seq / setup_.weight;
    routing_ = commands::routed_batches(request(), served_, tokens * served_.shape.parallel.ep);
    runs_ = target_.emulated ? measure::served_proxy(served_.shape, tokens) : served_.shape;
  }

  const commands::Target& target() const { return target_; }

  void run() {
    const Profile profile = target_.measured ? target_.cluster : measured();
    const LayerPricer pricer(profile, served_.shape, commands::pricing_of(options_.selection));
    const PathProfile paths(routing_.profiled, commands::path_length(options_.serve));
    if (target_.is_leader() && !options_.serve.write_profile.empty()) paths.write(options_.serve.write_profile);
    if (!target_.emulated) measure_costs(pricer, paths);
    Serving serving(pricer, setup_);
    for (const ServingVariant* variant : variants_)
      all_.push_back({variant, serving.run(*variant, routing_.served, &paths)});
    for (const PriceNote& note : serving.notes()) log_info(note.text());
    std::optional<Progress> progress;
    if (target_.is_leader()) progress.emplace("serving batches");
    const auto batches =
        measure::serve_batches(serving, variants_, routing_.served, paths,
                               {.shape = runs_,
                                .emulated = target_.emulated,
                                .list_length = setup_.list_length,
                                .max_experts = setup_.max_experts,
                                .seed = options_.seed,
                                .timeout_s = options_.timeout_s,
                                .ranks = target_.ranks,
                                .progress = [&](double share) { progress ? progress->at(share) : void(); }});
    if (progress) progress->finish();
    for (size_t i = 0; i < all_.size(); ++i) {
      all_[i].measured = batches[i].result;
      all_[i].measured->host_bytes = all_[i].predicted.host_bytes;
      dilation_ = std::max(dilation_, batches[i].dilation.factor);
      records_.push_back(record_of(all_[i], batches[i], profile.name));
      writer_.append_new(records_.back());
    }
    writer_.end();
  }

  std::string text() const {
    const std::string where = target_.emulated
                                  ? fmt::format("{} (emulated by {}, {})", target_.place(),
                                                counted(static_cast<size_t>(runs_.parallel.ranks()), "thread"),
                                                fmt::format("dilation {:.2f}", dilation_))
                                  : target_.place();
    std::string text = commands::serving_heading(served_, routing_, where);
    if (setup_.weight > 1)
      text += fmt::format("each token of the routing represents {} tokens with the same experts\n", setup_.weight);
    text += '\n' + commands::table_text(all_) + '\n';
    for (size_t v = 0; v < all_.size(); ++v)
      if (!valid(v))
        text += fmt::format("{}: {}: {}\n", all_[v].variant->name, name_of(records_[v].status), records_[v].reason);
    std::vector<double> errors;
    for (const size_t v : valid_variants())
      for (size_t i = 0; i < all_[v].predicted.batch_s.size(); ++i)
        errors.push_back(std::abs(all_[v].measured->batch_s[i] / all_[v].predicted.batch_s[i] - 1));
    if (errors.empty())
      text += "no variant ran validly, so none is compared or ranked\n";
    else
      text += fmt::format("measured against predicted: {} off in the median of {} batches, {} at worst; {}\n",
                          percent(median(errors), 2), errors.size(), percent(std::ranges::max(errors), 2), ranking());
    return text + fmt::format("records: {}\n", writer_.path());
  }

  std::string json() const {
    Json rows = Json::array();
    for (size_t v = 0; v < all_.size(); ++v) {
      const commands::ServedVariant& variant = all_[v];
      Json row{{"variant", variant.variant->name},
               {"status", name_of(records_[v].status)},
               {"reason", records_[v].reason},
               {"measured_over_predicted", variant.measured_over_predicted()},
               {"measured", to_json(commands::numbers_of(*variant.measured))},
               {"predicted", to_json(commands::numbers_of(variant.predicted))}};
      row["measured"]["batch_s"] = variant.measured->batch_s;
      row["predicted"]["batch_s"] = variant.predicted.batch_s;
      rows.push_back(std::move(row));
    }
    Json document = commands::serving_json(served_, routing_, target_.cluster.name, std::move(rows));
    document["records"] = writer_.path();
    document["emulated"] = target_.emulated;
    document["dilation"] = dilation_;
    document["tokens_alike"] = setup_.weight;
    const auto alike = ranks_agree();
    document["ranked_as_predicted"] = alike ? Json(*alike) : Json();
    return document_text(document);
  }

 private:
  commands::ServeRequest request() const {
    std::optional<uint64_t> seed;  // none: the routing comes from a trace, so it has no seed
    if (options_.serve.routing.empty()) seed = options_.seed;
    return {options_.serve, options_.selection, options_.stack, seed, kRunBatches};
  }

  Profile measured() {
    commands::OpRequest request;
    request.settings.repetitions = options_.iterations.value_or(measure::kPasses);
    request.settings.timeout_s = options_.timeout_s;
    request.sizes = measure::sizes_for(served_.shape.layer.dtype, target_.ranks.device);
    commands::LayerJob job = commands::layer_job_on(target_, options_.selection, {.timeout_s = options_.timeout_s});
    job.name = describe(served_.shape.layer);
    job.model.shape = served_.shape;
    job.schedules = {&find_schedule("ds-moe")};  // its tasks include all kinds that serving uses
    return commands::measured_profile(target_, writer_, request, {job});
  }

  // Measures, in this process, the costs that profiles do not contain: estimates, placements, and swaps of experts.
  void measure_costs(const LayerPricer& pricer, const PathProfile& paths) {
    const RoutingTrace& served = routing_.served;
    const RoutingTrace own{served.layers, served.experts, served.batch_tokens / served_.shape.parallel.ep,
                           served.part(0, 1).choices};
    ServingCosts& costs = setup_.costs;
    std::vector<double> popularity;
    costs.estimate_s = seconds_of([&] { popularity = paths.estimate(own, paths.length(), 0); });
    costs.schedule_s = costs.reschedule_s =
        seconds_of([&] { place_experts(popularity, served_.shape.parallel.ep, setup_.max_experts); });
    if (options_.serve.swap_gb_per_s) return;
    const auto bytes = static_cast<size_t>(Serving(pricer, setup_).expert_bytes());
    const std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to(bytes);
    costs.swap_bytes_per_s =
        static_cast<double>(bytes) / seconds_of([&] { std::memcpy(to.data(), from.data(), bytes); });
  }

  bool valid(size_t variant) const { return records_[variant].status == CaseStatus::ok; }

  std::vector<size_t> valid_variants() const {
    std::vector<size_t> places;
    for (size_t i = 0; i < all_.size(); ++i)
      if (valid(i)) places.push_back(i);
    return places;
  }

  std::string ranking() const {
    const auto alike = ranks_agree();
    if (!alike) return "fewer than two valid variants to rank";
    return *alike ? "variants are ranked as predicted" : "variants are not ranked as predicted";
  }

  // Returns whether measured and predicted times rank the variants equally; true if only one variant was requested and
  // is valid. None if several were requested and fewer than two are valid.
  std::optional<bool> ranks_agree() const {
    std::vector<size_t> order = valid_variants();
    if (order.size() < std::min<size_t>(2, all_.size())) return std::nullopt;
    std::vector<size_t> measured = order;
    const auto by = [](std::vector<size_t>& places, const auto& batch_s) {
      std::ranges::stable_sort(places, {}, [&](size_t i) { return median(batch_s(i)); });
    };
    by(order, [&](size_t i) { return all_[i].predicted.batch_s; });
    by(measured, [&](size_t i) { return all_[i].measured->batch_s; });
    return order == measured;
  }

  CaseRecord record_of(const commands::ServedVariant& variant, const measure::ServedBatches& batches,
                       const std::string& by) const {
    Fields parameters = commands::serving_parameters(request(), served_, routing_, target_.cluster.name);
    parameters.set("predicted_by", by);
    CaseRecord record = commands::record_of(variant, parameters);
    record.backend = target_.backend();
    record.emulated = target_.emulated;
    record.dilation = batches.dilation.factor;
    record.samples = {{"batch_s", batches.batch_s}};
    record.summary = commands::numbers_of(*variant.measured);
    if (batches.paced_tasks > 0) {
      record.summary.set("repeats", int64_t{batches.repeats});
      commands::judge_overruns(batches.overrun_share(), record);
    }
    return record;
  }

  const LayerbenchOptions& options_;
  commands::Target target_;
  std::vector<const ServingVariant*> variants_;
  commands::ServedCase served_;
  RecordWriter writer_;
  ServingSetup setup_;
  commands::RoutedBatches routing_;
  LayerCase runs_;
  double dilation_ = 1;  // largest dilation of all variants
  std::vector<commands::ServedVariant> all_;
  std::vector<CaseRecord> records_;  // by variant
};

}  // namespace

int run_serve(const LayerbenchOptions& options, World* processes) {
  require<Unsupported>(options.device == DeviceKind::cpu, "--device: found cuda, expected cpu with --serve");
  ServeBench bench(options, processes);
  bench.run();
  if (bench.target().is_leader()) fmt::print("{}\n", options.json ? bench.json() : bench.text());
  return kOk;
}

}  // namespace moe::layerbench
