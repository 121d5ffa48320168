/* List schedules: quick_list.py in C. */

#include "walks.h"

#include <string.h>

#define US_PER_S 1000000

static const Link *nearest_link(const Walker *w, const Listing *l, int32_t before, int32_t node)
{
    const Problem *p = w->problem;
    const int32_t *nodes = l->group_node + (int64_t)before * p->longest_group;
    const Node *home = &p->nodes[node];
    const Link *best = NULL;
    for (int32_t k = 0; k < l->group_size[before]; k++)
        if (nodes[k] == node)
            return &home->intra;
    for (int32_t k = 0; k < l->group_size[before]; k++)
        if (p->nodes[nodes[k]].zone == home->zone)
            return &p->inter;
    for (int32_t k = 0; k < l->group_size[before]; k++) {
        const Link *link = &p->between[p->nodes[nodes[k]].zone * p->zone_count + home->zone];
        if (!best || link->bandwidth > best->bandwidth ||
            (link->bandwidth == best->bandwidth && link->latency_us < best->latency_us))
            best = link;
    }
    return best;
}

/* The hand-off of an input from the group of another task to a group. */
static int64_t lag_us(
    const Walker *w, const Listing *l, int64_t size, int32_t before, const Offer *group)
{
    const Problem *p = w->problem;
    const int32_t *nodes = l->group_node + (int64_t)before * p->longest_group;
    const Mask *masks = l->group_mask + (int64_t)before * p->longest_group;
    int64_t slowest = INT64_MAX, latency_us = 0;
    int32_t missing = 0, devices = 0;
    for (int32_t g = 0; g < group->size; g++) {
        Mask held = 0;
        for (int32_t k = 0; k < l->group_size[before]; k++)
            if (nodes[k] == group->node[g])
                held = masks[k];
        devices += bits_of(group->mask[g]);
        const int32_t lacks = bits_of(group->mask[g] & ~held);
        if (!lacks)
            continue;
        const Link *link = nearest_link(w, l, before, group->node[g]);
        missing += lacks;
        if (link->bandwidth < slowest)
            slowest = link->bandwidth;
        if (link->latency_us > latency_us)
            latency_us = link->latency_us;
    }
    if (!missing || !size)
        return 0;
    int64_t product, speed;
    if (!__builtin_mul_overflow(size, (int64_t)missing * US_PER_S, &product) &&
        !__builtin_mul_overflow(slowest, (int64_t)devices, &speed) && product <= INT64_MAX - speed)
        return latency_us + (product + speed - 1) / speed;
    const __int128 moved = (__int128)size * missing * US_PER_S, rate = (__int128)devices * slowest;
    return latency_us + (int64_t)((moved + rate - 1) / rate);
}

/* Tasks as they become ready, by falling priority; by number where that is equal. */
static void sort_tasks(const Walker *w, Listing *l)
{
    const int64_t *late = w->late_us;
    for (int32_t k = 1; k < l->count; k++) {
        const int32_t i = l->order[k];
        int32_t at = k;
        for (; at > 0; at--) {
            const int32_t j = l->order[at - 1];
            if (late[j] < late[i] || (late[j] == late[i] && j < i))
                break;
            l->order[at] = j;
        }
        l->order[at] = i;
    }
}

static const Mode *mode_of(const Walker *w, int32_t task)
{
    return w->problem->tasks[task].modes + w->choice.picks[task];
}

void measure_cascade(Walker *w, const Cascade *row)
{
    const Problem *p = w->problem;
    for (int32_t i = row->first; i < row->first + row->count; i++) {
        int64_t mine = -w->choice.priority[i];
        for (int32_t k = 0; k < p->tasks[i].predecessor_count; k++) {
            const int64_t theirs = w->late_us[p->tasks[i].predecessors[k]];
            if (theirs > mine)
                mine = theirs;
        }
        w->late_us[i] = mine;
    }
    for (int32_t i = row->first + row->count - 1; i >= row->first; i--) {
        int64_t rest_us = 0;
        for (int32_t k = 0; k < p->tasks[i].successor_count; k++) {
            const int32_t s = p->tasks[i].successors[k];
            const int64_t us = w->after_us[s] + mode_of(w, s)->least_us;
            if (us > rest_us)
                rest_us = us;
        }
        w->after_us[i] = rest_us;
    }
}

static int64_t arrival_us(const Walker *w, const Listing *l, int32_t task, const Offer *group)
{
    const Task *t = &w->problem->tasks[task];
    int64_t latest = 0;
    for (int32_t k = 0; k < t->predecessor_count; k++) {
        const int32_t before = t->predecessors[k];
        int64_t us = l->ends_us[before];
        if (t->input_bytes)
            us += lag_us(w, l, t->input_bytes, before, group);
        if (us > latest)
            latest = us;
    }
    return latest;
}

/* Whether a task is held as where the walk is. */
static int held_alike(const Walker *w, int32_t task)
{
    const Listing *now = &w->now;
    const int64_t at = (int64_t)task * w->problem->longest_group;
    if (w->choice.held[task] != now->held[task])
        return 0;
    if (!now->held[task])
        return 1;
    if (w->choice.group_size[task] != now->group_size[task])
        return 0;
    for (int32_t g = 0; g < now->group_size[task]; g++)
        if (w->choice.group_node[at + g] != now->group_node[at + g] ||
            w->choice.group_mask[at + g] != now->group_mask[at + g])
            return 0;
    return 1;
}

/* Tasks that the trial begins with and places as where the walk is. */
static int32_t count_alike(const Walker *w)
{
    const Listing *now = &w->now, *l = &w->trial;
    const int32_t most = now->count < l->count ? now->count : l->count;
    int32_t k = 0;
    for (; k < most; k++) {
        const int32_t i = l->order[k];
        if (i != now->order[k] || w->choice.picks[i] != now->picks[i] ||
            w->choice.sites[i] != now->sites[i] || !held_alike(w, i))
            break;
    }
    return k;
}

static void occupy_as_now(Walker *w, int32_t from, int32_t to)
{
    const Listing *now = &w->now;
    const int64_t longest = w->problem->longest_group;
    for (int32_t k = from; k < to; k++) {
        const int32_t i = now->order[k];
        for (int32_t g = 0; g < now->group_size[i]; g++)
            occupy(
                w, now->group_node[i * longest + g], now->group_mask[i * longest + g],
                now->ends_us[i]);
    }
}

/* The slots before a task of where the walk is. */
static void set_slots(Walker *w, int32_t before)
{
    const size_t size = sizeof(Slot) * w->slot_count;
    const int32_t wanted = before / KEPT_EVERY;
    int32_t kept = wanted < w->kept_count ? wanted : w->kept_count - 1;
    memcpy(w->slots, w->kept + (int64_t)kept * w->slot_count, size);
    for (; kept < wanted; kept++) {
        occupy_as_now(w, kept * KEPT_EVERY, (kept + 1) * KEPT_EVERY);
        memcpy(w->kept + (int64_t)(kept + 1) * w->slot_count, w->slots, size);
        w->kept_count = kept + 2;
    }
    occupy_as_now(w, wanted * KEPT_EVERY, before);
}

/* Begins the trial with the tasks that it places as where the walk is. */
static void take_alike(Walker *w)
{
    const Listing *now = &w->now;
    Listing *l = &w->trial;
    const int64_t longest = w->problem->longest_group;
    w->alike = count_alike(w);
    for (int32_t k = w->shared; k < w->alike; k++) {
        const int32_t i = l->order[k];
        l->ends_us[i] = now->ends_us[i];
        l->spans_us[i] = now->spans_us[i];
        l->picks[i] = now->picks[i];
        l->sites[i] = now->sites[i];
        l->held[i] = now->held[i];
        l->group_size[i] = now->group_size[i];
        for (int32_t g = 0; g < now->group_size[i]; g++) {
            l->group_node[i * longest + g] = now->group_node[i * longest + g];
            l->group_mask[i * longest + g] = now->group_mask[i * longest + g];
        }
        l->after[k + 1] = now->after[k + 1];
    }
    w->shared = w->alike;
    set_slots(w, w->alike);
}

void take_trial(Walker *w)
{
    const Listing kept = w->now;
    const int32_t first = w->alike / KEPT_EVERY + 1;
    w->late_known &= w->alike == w->now.count && w->alike == w->trial.count;
    w->now = w->trial;
    w->trial = kept;
    if (w->kept_count > first)
        w->kept_count = first;
}

static int64_t ready_us(const Listing *l, const Task *task)
{
    int64_t latest = 0;
    for (int32_t k = 0; k < task->predecessor_count; k++)
        if (l->ends_us[task->predecessors[k]] > latest)
            latest = l->ends_us[task->predecessors[k]];
    return latest;
}

static void place(Walker *w, int32_t task, const Offer *offer, int64_t end_us)
{
    Listing *l = &w->trial;
    const int64_t at = (int64_t)task * w->problem->longest_group;
    l->ends_us[task] = end_us;
    l->spans_us[task] = offer->span_us;
    l->picks[task] = w->choice.picks[task];
    l->sites[task] = w->choice.sites[task];
    l->held[task] = w->choice.held[task];
    l->group_size[task] = offer->size;
    for (int32_t g = 0; g < offer->size; g++) {
        l->group_node[at + g] = offer->node[g];
        l->group_mask[at + g] = offer->mask[g];
        occupy(w, offer->node[g], offer->mask[g], end_us);
    }
}

int decode(Walker *w, int64_t most_us)
{
    Listing *l = &w->trial;
    sort_tasks(w, l);
    take_alike(w);
    Sums sum = l->after[w->alike];
    __int128 spare_us = (__int128)most_us * w->device_count - sum.area_us;
    for (int32_t k = w->alike; k < l->count; k++) {
        const Mode *mode = mode_of(w, l->order[k]);
        spare_us -= mode->degree * mode->least_us;
    }
    for (int32_t k = w->alike; k < l->count; k++) {
        const int32_t i = l->order[k];
        const Mode *mode = mode_of(w, i);
        const int64_t since_us = ready_us(l, &w->problem->tasks[i]);
        const Offer *offer = w->choice.held[i] ? held_group(w, since_us, mode, i)
                                               : best_group(w, since_us, mode, w->choice.sites[i]);
        if (!offer)
            return 0;
        int64_t end_us = offer->start_us + offer->span_us;
        if (w->problem->waits && since_us) {
            const int64_t there_us = arrival_us(w, l, i, offer);
            if (there_us > offer->start_us)
                end_us += there_us - offer->start_us;
        }
        const int64_t area_us = mode->degree * mode->least_us;
        sum.area_us += area_us;
        sum.lost_us += offer->waste_us + mode->degree * (end_us - offer->start_us) - area_us;
        if (end_us + w->after_us[i] > most_us || sum.lost_us > spare_us)
            return 0;
        place(w, i, offer, end_us);
        if (end_us > sum.makespan_us)
            sum.makespan_us = end_us;
        sum.sum_us += end_us;
        l->after[k + 1] = sum;
    }
    return 1;
}
