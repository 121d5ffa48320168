/* Walks among list schedules: quick_groups.py, quick_list.py, changes.py and plain_walker.py in C.
 *
 * Every function gives what its namesake there gives, number by number: a test holds the two
 * together. Times are microseconds, groups are masks of the devices of a node.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WALKS_VERSION 2
#define NEVER_US ((int64_t)1 << 62)
#define NODES_TRIED 4
#define TIMES_TRIED 5
#define US_PER_S 1000000
#define PPM 1000000
#define MOST_DEVICES 64

/* Shares of changes and slack: see changes.py. */
static const double OF_DEGREES = 0.5, OF_SITES = 0.5, ANY_NODE = 0.4, OF_TASKS = 0.8;
static const double DRAWN = 0.5, FOCUS = 0.75, TWO = 0.5, SLACK = 0.002;

typedef uint64_t Mask;

typedef struct {
    int64_t bandwidth, latency_us;
} Link;

typedef struct {
    int64_t duration_us, least_us, quickest_us;
    int32_t degree, kind;
} Mode;

typedef struct {
    const Mode *modes;
    const int32_t *predecessors, *successors;
    int64_t input_bytes;
    int32_t cascade, mode_count, drawn_count, first_mode, predecessor_count, successor_count;
} Task;

typedef struct {
    Link intra;
    const int32_t *nic;
    int32_t kind, size, zone;
} Node;

typedef struct {
    int32_t first, count;
} Cascade;

typedef struct {
    Task *tasks;
    Node *nodes;
    Cascade *cascades;
    Mode *modes;
    int32_t *numbers; /* predecessors, successors and NIC groups */
    Mask *rails;      /* devices of a node on a NIC group */
    int64_t *ppm;     /* penalty by shared and most NIC groups */
    Link *between;    /* of two zones */
    Link inter;
    int32_t task_count, mode_count, node_count, cascade_count, kind_count, nic_count, zone_count;
    int32_t widest, longest_group; /* devices of a node, nodes of a group at most */
    int32_t waits;
} Problem;

typedef struct {
    int64_t *ends_us, *spans_us;
    int32_t *order;
    int32_t *group_size, *group_node; /* longest_group entries for each task */
    Mask *group_mask;
    int64_t makespan_us, sum_us;
    int32_t count;
} Listing;

typedef struct {
    int32_t *picks, *sites;
    int64_t *priority;
} Choice;

typedef struct {
    int32_t task, pick, site;
    int64_t priority;
} Undo;

typedef struct {
    int32_t size, node;
} Room;

typedef struct {
    int64_t start_us, span_us, waste_us;
    int32_t size;
    int32_t *node;
    Mask *mask;
} Offer;

typedef struct {
    const Problem *problem;
    double *odds; /* of modes, added up task by task; NULL for equal odds */
    uint64_t chance;
    /* Nodes of each type that the walker has. */
    int32_t *nodes_of_kind, *first_of_kind;
    uint8_t *has_node;
    int32_t device_count;
    /* Slots of each node, sorted by time and device. */
    int64_t *free_us;
    uint8_t *device;
    Choice choice, other_choice, best_choice;
    Listing now, trial;
    int64_t best_makespan_us, best_sum_us;
    int32_t *best_order;
    int32_t best_count;
    int64_t *after_us, *late_us, *pool_us, *need_us, *task_start_us;
    int32_t *late;
    int32_t late_count, late_known;
    Undo *undo;
    int32_t undo_count;
    Room *rooms;
    Offer here, wide, wider;
} Walker;

/* ---------------------------------------------------------------- chance, as in chance.py */

static uint64_t next_bits(Walker *w)
{
    uint64_t z = (w->chance += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double unit(Walker *w)
{
    return (double)(next_bits(w) >> 11) * 0x1p-53;
}

static int32_t below(Walker *w, int32_t count)
{
    return (int32_t)(unit(w) * count);
}

/* ---------------------------------------------------------------- groups: quick_groups.py */

static int64_t scale_up(int64_t value, int64_t ppm)
{
    return (int64_t)(((__int128)value * ppm + PPM - 1) / PPM);
}

static int32_t free_by(const Walker *w, int32_t node, int64_t when_us)
{
    const int64_t *row = w->free_us + (int64_t)node * w->problem->widest;
    int32_t size = w->problem->nodes[node].size, count = 0;
    while (count < size && row[count] <= when_us)
        count++;
    return count;
}

/* The devices of some slots of a node. */
static Mask mask_of(const Walker *w, int32_t node, int32_t from, int32_t to)
{
    const uint8_t *row = w->device + (int64_t)node * w->problem->widest;
    Mask mask = 0;
    for (int32_t k = from; k < to; k++)
        mask |= (Mask)1 << row[k];
    return mask;
}

static void occupy(Walker *w, int32_t node, Mask mask, int64_t end_us)
{
    const int32_t size = w->problem->nodes[node].size;
    int64_t *row = w->free_us + (int64_t)node * w->problem->widest;
    uint8_t *device = w->device + (int64_t)node * w->problem->widest;
    int32_t kept = 0;
    for (int32_t k = 0; k < size; k++)
        if (!(mask >> device[k] & 1)) {
            row[kept] = row[k];
            device[kept++] = device[k];
        }
    while (mask) {
        const uint8_t d = (uint8_t)__builtin_ctzll(mask);
        int32_t k = kept++;
        mask &= mask - 1;
        for (; k > 0 && (row[k - 1] > end_us || (row[k - 1] == end_us && device[k - 1] > d)); k--) {
            row[k] = row[k - 1];
            device[k] = device[k - 1];
        }
        row[k] = end_us;
        device[k] = d;
    }
}

/* A group of a node from the time on at which the node is free for it and the task is ready. */
static void at_node(Walker *w, int32_t node, int64_t ready_us, const Mode *mode, Offer *out)
{
    const int64_t *row = w->free_us + (int64_t)node * w->problem->widest;
    const int32_t degree = mode->degree;
    const int64_t start_us = row[degree - 1] > ready_us ? row[degree - 1] : ready_us;
    const int32_t upto = free_by(w, node, start_us);
    int64_t sum_us = 0;
    for (int32_t k = upto - degree; k < upto; k++)
        sum_us += row[k];
    out->start_us = start_us;
    out->span_us = mode->duration_us;
    out->waste_us = degree * start_us - sum_us;
    out->size = 1;
    out->node[0] = node;
    out->mask[0] = mask_of(w, node, upto - degree, upto);
}

/* The node where a task starts first; of several one that has had enough room last. */
static int on_node(Walker *w, int64_t ready_us, const Mode *mode, Offer *out)
{
    const Problem *p = w->problem;
    const int32_t degree = mode->degree, widest = p->widest;
    int64_t first_us = NEVER_US, last_us = -1;
    int32_t first_device = 0, last_device = -1, first = -1, last = -1;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++) {
        const int32_t n = w->nodes_of_kind[x];
        if (p->nodes[n].size < degree)
            continue;
        const int64_t at = (int64_t)n * widest + degree - 1;
        const int64_t us = w->free_us[at];
        const int32_t d = w->device[at];
        if (us < first_us || (us == first_us && d < first_device)) {
            first_us = us;
            first_device = d;
            first = n;
        }
        if (us <= ready_us && (us > last_us || (us == last_us && d > last_device))) {
            last_us = us;
            last_device = d;
            last = n;
        }
    }
    if (first < 0)
        return 0;
    at_node(w, first_us < ready_us ? last : first, ready_us, mode, out);
    return 1;
}

/* Devices on equal NIC groups of each node; 0 where the degree does not fit so. */
static int align(
    const Walker *w, const Room *const *chosen, int32_t count, int32_t degree, Mask *masks)
{
    const Problem *p = w->problem;
    struct {
        int32_t total, nic;
    } shared[MOST_DEVICES];
    Mask free_masks[count];
    int32_t found = 0, total = 0, used = 0;
    for (int32_t k = 0; k < count; k++)
        free_masks[k] = mask_of(w, chosen[k]->node, 0, chosen[k]->size);
    for (int32_t nic = 0; nic < p->nic_count; nic++) {
        int32_t sum = 0, k = 0;
        for (; k < count; k++) {
            const Mask part = free_masks[k] & p->rails[chosen[k]->node * p->nic_count + nic];
            if (!part)
                break;
            sum += __builtin_popcountll(part);
        }
        if (k < count)
            continue;
        int32_t at = found++;
        for (; at > 0 && shared[at - 1].total < sum; at--)
            shared[at] = shared[at - 1];
        shared[at].total = sum;
        shared[at].nic = nic;
    }
    while (used < found && total < degree)
        total += shared[used++].total;
    if (total < degree || used * count > degree)
        return 0;
    /* One device of each NIC group on each node first: they decide the overlap. */
    memset(masks, 0, sizeof(Mask) * count);
    for (int32_t r = 0; r < used; r++)
        for (int32_t k = 0; k < count; k++) {
            const Mask part =
                free_masks[k] & p->rails[chosen[k]->node * p->nic_count + shared[r].nic];
            masks[k] |= part & -part;
        }
    int32_t left = degree - used * count;
    for (int32_t r = 0; r < used && left; r++)
        for (int32_t k = 0; k < count && left; k++) {
            Mask spare = free_masks[k] & p->rails[chosen[k]->node * p->nic_count + shared[r].nic];
            spare &= spare - 1;
            while (spare && left) {
                masks[k] |= spare & -spare;
                spare &= spare - 1;
                left--;
            }
        }
    return 1;
}

static void sort_group(Offer *group)
{
    for (int32_t k = 1; k < group->size; k++) {
        const int32_t node = group->node[k];
        const Mask mask = group->mask[k];
        int32_t at = k;
        for (; at > 0 && group->node[at - 1] > node; at--) {
            group->node[at] = group->node[at - 1];
            group->mask[at] = group->mask[at - 1];
        }
        group->node[at] = node;
        group->mask[at] = mask;
    }
}

/* Tries some nodes: count of them, as combinations of the first ones in order. */
static int aligned_of_count(
    const Walker *w, int32_t room_count, int32_t count, int32_t degree, Offer *out)
{
    const int32_t among_most = count > NODES_TRIED ? count : NODES_TRIED;
    const int32_t among = room_count < among_most ? room_count : among_most;
    if (count > among)
        return 0;
    int32_t at[count];
    const Room *chosen[count];
    for (int32_t k = 0; k < count; k++)
        at[k] = k;
    for (;;) {
        int32_t total = 0;
        for (int32_t k = 0; k < count; k++) {
            chosen[k] = &w->rooms[at[k]];
            total += chosen[k]->size;
        }
        if (total >= degree && align(w, chosen, count, degree, out->mask)) {
            out->size = count;
            for (int32_t k = 0; k < count; k++)
                out->node[k] = chosen[k]->node;
            sort_group(out);
            return 1;
        }
        if (count > NODES_TRIED)
            return 0;
        int32_t k = count - 1;
        while (k >= 0 && at[k] == among - count + k)
            k--;
        if (k < 0)
            return 0;
        at[k]++;
        for (k++; k < count; k++)
            at[k] = at[k - 1] + 1;
    }
}

/* A group among the devices free at a time; whether its NIC groups are aligned. */
static int free_group(Walker *w, const Mode *mode, int64_t start_us, Offer *out)
{
    int32_t room_count = 0, total = 0, least = 0;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++) {
        const int32_t n = w->nodes_of_kind[x], size = free_by(w, n, start_us);
        if (!size)
            continue;
        int32_t at = room_count++;
        for (; at > 0 && w->rooms[at - 1].size < size; at--)
            w->rooms[at] = w->rooms[at - 1];
        w->rooms[at].size = size;
        w->rooms[at].node = n;
    }
    for (; least < room_count && total < mode->degree; least++)
        total += w->rooms[least].size;
    if (least < 2)
        least = 2;
    for (int32_t count = least; count <= least + 1; count++)
        if (aligned_of_count(w, room_count, count, mode->degree, out))
            return 1;
    /* Devices of the emptiest nodes, whatever their NIC groups. */
    int32_t left = mode->degree;
    out->size = 0;
    for (int32_t r = 0; left && r < room_count; r++) {
        const Room *room = &w->rooms[r];
        const int32_t count = left < room->size ? left : room->size;
        out->node[out->size] = room->node;
        out->mask[out->size++] = mask_of(w, room->node, room->size - count, room->size);
        left -= count;
    }
    sort_group(out);
    return 0;
}

static int64_t span_us(const Walker *w, const Mode *mode, const Offer *group)
{
    const Problem *p = w->problem;
    Mask shared = ~(Mask)0;
    int32_t widest = 0;
    if (group->size < 2)
        return mode->duration_us;
    for (int32_t k = 0; k < group->size; k++) {
        const Node *node = &p->nodes[group->node[k]];
        Mask nics = 0;
        for (Mask left = group->mask[k]; left; left &= left - 1)
            nics |= (Mask)1 << node->nic[__builtin_ctzll(left)];
        shared &= nics;
        if (__builtin_popcountll(nics) > widest)
            widest = __builtin_popcountll(nics);
    }
    const int64_t ppm = p->ppm[__builtin_popcountll(shared) * (p->nic_count + 1) + widest];
    return scale_up(mode->duration_us, ppm);
}

/* The value with so many below or equal to it, by quickselect; disturbs the order. */
static int64_t nth_us(int64_t *us, int32_t count, int32_t nth)
{
    int32_t low = 0, high = count - 1;
    while (low < high) {
        const int64_t pivot = us[(low + high) / 2];
        int32_t i = low, j = high;
        while (i <= j) {
            while (us[i] < pivot)
                i++;
            while (us[j] > pivot)
                j--;
            if (i <= j) {
                const int64_t kept = us[i];
                us[i++] = us[j];
                us[j--] = kept;
            }
        }
        if (nth <= j)
            high = j;
        else if (nth >= i)
            low = i;
        else
            break;
    }
    return us[nth];
}

/* The next time after one at which more devices are free, of a degree at least. */
static int64_t next_start_us(Walker *w, const Mode *mode, int64_t after_us, int *known)
{
    const Problem *p = w->problem;
    const int32_t from = w->first_of_kind[mode->kind], to = w->first_of_kind[mode->kind + 1];
    int64_t found = NEVER_US;
    if (!*known) {
        int32_t count = 0;
        for (int32_t x = from; x < to; x++) {
            const int32_t n = w->nodes_of_kind[x];
            memcpy(
                w->pool_us + count, w->free_us + (int64_t)n * p->widest,
                sizeof(int64_t) * p->nodes[n].size);
            count += p->nodes[n].size;
        }
        *known = 1;
        found = nth_us(w->pool_us, count, mode->degree - 1);
        if (found > after_us)
            return found;
        found = NEVER_US;
    }
    for (int32_t x = from; x < to; x++) {
        const int32_t n = w->nodes_of_kind[x];
        const int64_t *row = w->free_us + (int64_t)n * p->widest;
        for (int32_t k = 0; k < p->nodes[n].size; k++)
            if (row[k] > after_us) {
                if (row[k] < found)
                    found = row[k];
                break;
            }
    }
    return found;
}

/* Devices free by a time, or before it where that is asked. */
static int32_t free_in_all(const Walker *w, const Mode *mode, int64_t when_us)
{
    int32_t total = 0;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++)
        total += free_by(w, w->nodes_of_kind[x], when_us);
    return total;
}

static void swap_offers(Offer *a, Offer *b)
{
    const Offer kept = *a;
    *a = *b;
    *b = kept;
}

/* The best group over several nodes that ends before a time, left in w->wide; whether any does. */
static int across(Walker *w, int64_t ready_us, const Mode *mode, int64_t before_us)
{
    const Problem *p = w->problem;
    const int64_t quickest_us = mode->quickest_us, least_us = before_us - quickest_us;
    int found = 0, known = 0;
    int64_t start_us = ready_us;
    if (free_in_all(w, mode, ready_us) < mode->degree) {
        if (free_in_all(w, mode, least_us - 1) < mode->degree)
            return 0;
        start_us = next_start_us(w, mode, ready_us, &known);
        if (start_us >= least_us)
            return 0;
    }
    for (int32_t tried = 0;; tried++) {
        if (before_us < NEVER_US && tried >= TIMES_TRIED)
            break;
        const int aligned = free_group(w, mode, start_us, &w->wider);
        const int64_t span = aligned ? quickest_us : span_us(w, mode, &w->wider);
        if (start_us + span < before_us) {
            int64_t sum_us = 0;
            before_us = start_us + span;
            for (int32_t g = 0; g < w->wider.size; g++) {
                const int64_t at = (int64_t)w->wider.node[g] * p->widest;
                for (int32_t k = 0; k < p->nodes[w->wider.node[g]].size; k++)
                    if (w->wider.mask[g] >> w->device[at + k] & 1)
                        sum_us += w->free_us[at + k];
            }
            w->wider.start_us = start_us;
            w->wider.span_us = span;
            w->wider.waste_us = mode->degree * start_us - sum_us;
            swap_offers(&w->wide, &w->wider);
            found = 1;
        }
        if (start_us + quickest_us >= before_us)
            break;
        start_us = next_start_us(w, mode, start_us, &known);
        if (start_us >= least_us)
            break;
    }
    return found;
}

static const Offer *best_group(Walker *w, int64_t ready_us, const Mode *mode, int32_t site)
{
    int64_t before_us = NEVER_US;
    const Offer *found = NULL;
    if (site >= 0 && w->has_node[site] && w->problem->nodes[site].kind == mode->kind &&
        w->problem->nodes[site].size >= mode->degree) {
        at_node(w, site, ready_us, mode, &w->here);
        return &w->here;
    }
    if (on_node(w, ready_us, mode, &w->here)) {
        found = &w->here;
        before_us = w->here.start_us + mode->duration_us;
    }
    const int32_t count = w->first_of_kind[mode->kind + 1] - w->first_of_kind[mode->kind];
    if (mode->degree > 1 && count > 1 && ready_us + mode->quickest_us < before_us &&
        across(w, ready_us, mode, before_us))
        found = &w->wide;
    return found;
}

/* ---------------------------------------------------------------- list schedules: quick_list.py */

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
        devices += __builtin_popcountll(group->mask[g]);
        const int32_t lacks = __builtin_popcountll(group->mask[g] & ~held);
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

/* Puts what orders a running cascade and what follows its tasks into late_us and after_us. */
static void measure_cascade(Walker *w, const Cascade *row)
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

static void free_all(Walker *w)
{
    const Problem *p = w->problem;
    for (int32_t x = 0; x < w->first_of_kind[p->kind_count]; x++) {
        const int64_t at = (int64_t)w->nodes_of_kind[x] * p->widest;
        memset(w->free_us + at, 0, sizeof(int64_t) * p->widest);
        for (int32_t d = 0; d < p->widest; d++)
            w->device[at + d] = (uint8_t)d;
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

/* The schedule of the trial's tasks as the choice has them; 0 where it ends after a time. */
static int decode(Walker *w, int64_t most_us)
{
    const Problem *p = w->problem;
    Listing *l = &w->trial;
    __int128 spare_us = (__int128)most_us * w->device_count;
    int64_t lost_us = 0;
    sort_tasks(w, l);
    free_all(w);
    for (int32_t k = 0; k < l->count; k++) {
        const Mode *mode = mode_of(w, l->order[k]);
        spare_us -= mode->degree * mode->least_us;
    }
    l->makespan_us = l->sum_us = 0;
    for (int32_t k = 0; k < l->count; k++) {
        const int32_t i = l->order[k];
        const Task *task = &p->tasks[i];
        const Mode *mode = mode_of(w, i);
        int64_t ready_us = 0;
        for (int32_t x = 0; x < task->predecessor_count; x++)
            if (l->ends_us[task->predecessors[x]] > ready_us)
                ready_us = l->ends_us[task->predecessors[x]];
        const Offer *offer = best_group(w, ready_us, mode, w->choice.sites[i]);
        if (!offer)
            return 0;
        int64_t end_us = offer->start_us + offer->span_us;
        if (p->waits && ready_us) {
            const int64_t there_us = arrival_us(w, l, i, offer);
            if (there_us > offer->start_us)
                end_us += there_us - offer->start_us;
        }
        lost_us += offer->waste_us + mode->degree * (end_us - offer->start_us) -
                   mode->degree * mode->least_us;
        if (end_us + w->after_us[i] > most_us || lost_us > spare_us)
            return 0;
        l->ends_us[i] = end_us;
        l->spans_us[i] = offer->span_us;
        l->group_size[i] = offer->size;
        for (int32_t g = 0; g < offer->size; g++) {
            l->group_node[(int64_t)i * p->longest_group + g] = offer->node[g];
            l->group_mask[(int64_t)i * p->longest_group + g] = offer->mask[g];
            occupy(w, offer->node[g], offer->mask[g], end_us);
        }
        if (end_us > l->makespan_us)
            l->makespan_us = end_us;
        l->sum_us += end_us;
    }
    return 1;
}

/* ---------------------------------------------------------------- changes: changes.py */

/* Tasks that would delay the end if they ended but a little later, the last first. */
static void find_late(Walker *w)
{
    const Problem *p = w->problem;
    const Listing *l = &w->now;
    const double least_us = (double)l->makespan_us * SLACK;
    for (int32_t x = 0; x < w->first_of_kind[p->kind_count]; x++)
        for (int32_t d = 0; d < p->widest; d++)
            w->need_us[(int64_t)w->nodes_of_kind[x] * p->widest + d] = l->makespan_us;
    w->late_count = 0;
    for (int32_t k = l->count - 1; k >= 0; k--) {
        const int32_t i = l->order[k];
        const int32_t *nodes = l->group_node + (int64_t)i * p->longest_group;
        const Mask *masks = l->group_mask + (int64_t)i * p->longest_group;
        int64_t latest = l->makespan_us;
        for (int32_t x = 0; x < p->tasks[i].successor_count; x++)
            if (w->task_start_us[p->tasks[i].successors[x]] < latest)
                latest = w->task_start_us[p->tasks[i].successors[x]];
        for (int32_t g = 0; g < l->group_size[i]; g++)
            for (Mask left = masks[g]; left; left &= left - 1) {
                const int64_t us =
                    w->need_us[(int64_t)nodes[g] * p->widest + __builtin_ctzll(left)];
                if (us < latest)
                    latest = us;
            }
        if ((double)(latest - l->ends_us[i]) <= least_us)
            w->late[w->late_count++] = i;
        w->task_start_us[i] = latest - l->spans_us[i];
        for (int32_t g = 0; g < l->group_size[i]; g++)
            for (Mask left = masks[g]; left; left &= left - 1)
                w->need_us[(int64_t)nodes[g] * p->widest + __builtin_ctzll(left)] =
                    w->task_start_us[i];
    }
    w->late_known = 1;
}

static int32_t some_task(Walker *w)
{
    if (!w->late_known)
        find_late(w);
    if (w->late_count && unit(w) < FOCUS)
        return w->late[below(w, w->late_count)];
    return w->now.order[below(w, w->now.count)];
}

static void note(Walker *w, int32_t task)
{
    Undo *undo = &w->undo[w->undo_count++];
    undo->task = task;
    undo->pick = w->choice.picks[task];
    undo->site = w->choice.sites[task];
    undo->priority = w->choice.priority[task];
}

static int32_t drawn_mode(Walker *w, int32_t task)
{
    const Task *t = &w->problem->tasks[task];
    if (w->odds && unit(w) < DRAWN) {
        const double *odds = w->odds + t->first_mode;
        const double at = unit(w) * odds[t->drawn_count - 1];
        int32_t k = 0;
        while (k < t->drawn_count - 1 && odds[k] <= at)
            k++;
        return k;
    }
    return below(w, t->drawn_count);
}

/* A node, or none in particular. */
static int32_t drawn_site(Walker *w)
{
    if (unit(w) < ANY_NODE)
        return -1;
    return w->nodes_of_kind[below(w, w->first_of_kind[w->problem->kind_count])];
}

/* Changes the choice; whether anything is other than before. */
static int change(Walker *w)
{
    const Problem *p = w->problem;
    const int degrees = unit(w) < OF_DEGREES, sites = !degrees && unit(w) < OF_SITES;
    int32_t some[2], count = 1;
    int changed = 0;
    w->undo_count = 0;
    some[0] = some_task(w);
    if (unit(w) < TWO)
        some[count++] = w->now.order[below(w, w->now.count)];
    for (int32_t s = 0; s < count; s++) {
        const int32_t i = some[s];
        if (sites) {
            note(w, i);
            w->choice.sites[i] = drawn_site(w);
            changed |= w->choice.sites[i] != w->undo[w->undo_count - 1].site;
            continue;
        }
        if (!degrees) {
            /* Of two tasks the second may take what the first had. */
            const int32_t like = w->now.order[below(w, w->now.count)];
            const int64_t theirs = s && like == some[0] ? w->undo[0].priority
                                                        : w->choice.priority[like];
            note(w, i);
            w->choice.priority[i] = theirs + below(w, 3) - 1;
            changed |= w->choice.priority[i] != w->undo[w->undo_count - 1].priority;
            continue;
        }
        Cascade row = {i, 1};
        if (unit(w) >= OF_TASKS)
            row = p->cascades[p->tasks[i].cascade];
        for (int32_t t = row.first; t < row.first + row.count; t++) {
            note(w, t);
            w->choice.picks[t] = drawn_mode(w, t);
            changed |= w->choice.picks[t] != w->undo[w->undo_count - 1].pick;
        }
    }
    return changed;
}

static void measure_changed(Walker *w)
{
    for (int32_t k = 0; k < w->undo_count; k++)
        measure_cascade(w, &w->problem->cascades[w->problem->tasks[w->undo[k].task].cascade]);
}

static void take_back(Walker *w)
{
    for (int32_t k = w->undo_count - 1; k >= 0; k--) {
        w->choice.picks[w->undo[k].task] = w->undo[k].pick;
        w->choice.sites[w->undo[k].task] = w->undo[k].site;
        w->choice.priority[w->undo[k].task] = w->undo[k].priority;
    }
    measure_changed(w);
}

/* ---------------------------------------------------------------- walks: plain_walker.py */

static void keep_best(Walker *w)
{
    const Listing *l = &w->now;
    if (l->makespan_us > w->best_makespan_us ||
        (l->makespan_us == w->best_makespan_us && l->sum_us >= w->best_sum_us))
        return;
    w->best_makespan_us = l->makespan_us;
    w->best_sum_us = l->sum_us;
    w->best_count = l->count;
    memcpy(w->best_order, l->order, sizeof(int32_t) * l->count);
    memcpy(w->best_choice.picks, w->choice.picks, sizeof(int32_t) * w->problem->task_count);
    memcpy(w->best_choice.sites, w->choice.sites, sizeof(int32_t) * w->problem->task_count);
    memcpy(
        w->best_choice.priority, w->choice.priority, sizeof(int64_t) * w->problem->task_count);
}

static void take_trial(Walker *w)
{
    const Listing kept = w->now;
    w->now = w->trial;
    w->trial = kept;
    w->late_known = 0;
    keep_best(w);
}

static void measure_listed(Walker *w, const Listing *l)
{
    for (int32_t k = 0; k < l->count; k++)
        measure_cascade(w, &w->problem->cascades[w->problem->tasks[l->order[k]].cascade]);
}

static void swap_choices(Walker *w)
{
    const Choice kept = w->choice;
    w->choice = w->other_choice;
    w->other_choice = kept;
}

/* Goes on from a choice for some tasks in rising order; -1 where they end after a time. */
int64_t walker_begin(
    Walker *w, const int32_t *tasks, int32_t count, const int32_t *picks, const int64_t *priority,
    const int32_t *sites, int64_t most_us)
{
    swap_choices(w);
    memcpy(w->choice.picks, picks, sizeof(int32_t) * w->problem->task_count);
    memcpy(w->choice.priority, priority, sizeof(int64_t) * w->problem->task_count);
    memcpy(w->choice.sites, sites, sizeof(int32_t) * w->problem->task_count);
    memcpy(w->trial.order, tasks, sizeof(int32_t) * count);
    w->trial.count = count;
    measure_listed(w, &w->trial);
    if (decode(w, most_us)) {
        take_trial(w);
        return w->now.makespan_us;
    }
    swap_choices(w);
    measure_listed(w, &w->now);
    return -1;
}

/* Goes so many steps, at a heat in parts of the makespan. */
void walker_walk(Walker *w, int64_t steps, double heat)
{
    for (int64_t step = 0; step < steps; step++) {
        const double worse_us = -log(1 - unit(w)) * heat * (double)w->now.makespan_us;
        const int64_t most_us = llrint((double)w->now.makespan_us + worse_us);
        if (!change(w))
            continue;
        measure_changed(w);
        w->trial.count = w->now.count;
        memcpy(w->trial.order, w->now.order, sizeof(int32_t) * w->now.count);
        if (decode(w, most_us))
            take_trial(w);
        else
            take_back(w);
    }
}

/* Makespan, sum of ends and number of tasks of the best, with its choice and its order. */
void walker_best(
    const Walker *w, int64_t *key, int32_t *order, int32_t *picks, int64_t *priority,
    int32_t *sites)
{
    key[0] = w->best_makespan_us;
    key[1] = w->best_sum_us;
    key[2] = w->best_count;
    memcpy(order, w->best_order, sizeof(int32_t) * w->best_count);
    memcpy(picks, w->best_choice.picks, sizeof(int32_t) * w->problem->task_count);
    memcpy(priority, w->best_choice.priority, sizeof(int64_t) * w->problem->task_count);
    memcpy(sites, w->best_choice.sites, sizeof(int32_t) * w->problem->task_count);
}

/* Where the walk is, as for the best; its tasks are in order. */
void walker_now(
    const Walker *w, int64_t *key, int32_t *order, int32_t *picks, int64_t *priority,
    int32_t *sites)
{
    const Listing *l = &w->now;
    key[0] = l->makespan_us;
    key[1] = l->sum_us;
    key[2] = l->count;
    memcpy(order, l->order, sizeof(int32_t) * l->count);
    memcpy(picks, w->choice.picks, sizeof(int32_t) * w->problem->task_count);
    memcpy(priority, w->choice.priority, sizeof(int64_t) * w->problem->task_count);
    memcpy(sites, w->choice.sites, sizeof(int32_t) * w->problem->task_count);
}

/* A task of where the walk is, often one that delays the end. */
int32_t walker_task(Walker *w)
{
    return some_task(w);
}

/* ---------------------------------------------------------------- memory */

int64_t walks_version(void)
{
    return WALKS_VERSION;
}

void walks_free_problem(Problem *p)
{
    if (!p)
        return;
    free(p->tasks);
    free(p->nodes);
    free(p->cascades);
    free(p->modes);
    free(p->numbers);
    free(p->rails);
    free(p->ppm);
    free(p->between);
    free(p);
}

static int read_tasks(Problem *p, const int64_t **at, int32_t **number)
{
    int32_t first_mode = 0;
    for (int32_t c = 0; c < p->cascade_count; c++) {
        p->cascades[c].first = (int32_t)*(*at)++;
        p->cascades[c].count = (int32_t)*(*at)++;
    }
    for (int32_t i = 0; i < p->task_count; i++) {
        Task *t = &p->tasks[i];
        t->cascade = (int32_t)*(*at)++;
        t->input_bytes = *(*at)++;
        t->mode_count = (int32_t)*(*at)++;
        t->drawn_count = (int32_t)*(*at)++;
        t->first_mode = first_mode;
        t->modes = p->modes + first_mode;
        for (int32_t k = 0; k < t->mode_count; k++) {
            Mode *mode = &p->modes[first_mode++];
            mode->degree = (int32_t)*(*at)++;
            mode->kind = (int32_t)*(*at)++;
            mode->duration_us = *(*at)++;
            mode->least_us = *(*at)++;
            mode->quickest_us = *(*at)++;
        }
        t->predecessor_count = (int32_t)*(*at)++;
        t->predecessors = *number;
        for (int32_t k = 0; k < t->predecessor_count; k++)
            *(*number)++ = (int32_t)*(*at)++;
        t->successor_count = (int32_t)*(*at)++;
        t->successors = *number;
        for (int32_t k = 0; k < t->successor_count; k++)
            *(*number)++ = (int32_t)*(*at)++;
    }
    return first_mode == p->mode_count;
}

static void read_nodes(Problem *p, const int64_t **at, int32_t **number)
{
    for (int32_t n = 0; n < p->node_count; n++) {
        Node *node = &p->nodes[n];
        node->kind = (int32_t)*(*at)++;
        node->size = (int32_t)*(*at)++;
        node->zone = (int32_t)*(*at)++;
        node->intra.bandwidth = *(*at)++;
        node->intra.latency_us = *(*at)++;
        node->nic = *number;
        for (int32_t d = 0; d < node->size; d++) {
            *(*number)++ = (int32_t)*(*at)++;
            p->rails[n * p->nic_count + node->nic[d]] |= (Mask)1 << d;
        }
    }
    for (int32_t k = 0; k < (p->nic_count + 1) * (p->nic_count + 1); k++)
        p->ppm[k] = *(*at)++;
    for (int32_t k = 0; k < p->zone_count * p->zone_count; k++) {
        p->between[k].bandwidth = *(*at)++;
        p->between[k].latency_us = *(*at)++;
    }
}

/* A problem as native_walker.py packs it; NULL where that is not what is read. */
Problem *walks_new_problem(const int64_t *at, int64_t length)
{
    const int64_t *const end = at + length;
    Problem *p = calloc(1, sizeof(Problem));
    if (!p)
        return NULL;
    p->task_count = (int32_t)*at++;
    p->mode_count = (int32_t)*at++;
    p->node_count = (int32_t)*at++;
    p->cascade_count = (int32_t)*at++;
    p->kind_count = (int32_t)*at++;
    p->nic_count = (int32_t)*at++;
    p->zone_count = (int32_t)*at++;
    p->widest = (int32_t)*at++;
    p->longest_group = (int32_t)*at++;
    p->waits = (int32_t)*at++;
    const int64_t number_count = *at++;
    p->inter.bandwidth = *at++;
    p->inter.latency_us = *at++;
    p->tasks = calloc(p->task_count, sizeof(Task));
    p->nodes = calloc(p->node_count, sizeof(Node));
    p->cascades = calloc(p->cascade_count, sizeof(Cascade));
    p->modes = calloc(p->mode_count, sizeof(Mode));
    p->numbers = calloc(number_count, sizeof(int32_t));
    p->rails = calloc((size_t)p->node_count * p->nic_count, sizeof(Mask));
    p->ppm = calloc((size_t)(p->nic_count + 1) * (p->nic_count + 1), sizeof(int64_t));
    p->between = calloc((size_t)p->zone_count * p->zone_count, sizeof(Link));
    int32_t *number = p->numbers;
    if (p->tasks && p->nodes && p->cascades && p->modes && p->numbers && p->rails && p->ppm &&
        p->between && read_tasks(p, &at, &number)) {
        read_nodes(p, &at, &number);
        if (at == end && number - p->numbers == number_count)
            return p;
    }
    walks_free_problem(p);
    return NULL;
}

static int new_listing(Listing *l, int64_t tasks, int64_t longest_group)
{
    l->ends_us = calloc(tasks, sizeof(int64_t));
    l->spans_us = calloc(tasks, sizeof(int64_t));
    l->order = calloc(tasks, sizeof(int32_t));
    l->group_size = calloc(tasks, sizeof(int32_t));
    l->group_node = calloc(tasks * longest_group, sizeof(int32_t));
    l->group_mask = calloc(tasks * longest_group, sizeof(Mask));
    return l->ends_us && l->spans_us && l->order && l->group_size && l->group_node &&
           l->group_mask;
}

static void free_listing(Listing *l)
{
    free(l->ends_us);
    free(l->spans_us);
    free(l->order);
    free(l->group_size);
    free(l->group_node);
    free(l->group_mask);
}

static int new_choice(Choice *choice, int64_t tasks)
{
    choice->picks = calloc(tasks, sizeof(int32_t));
    choice->sites = calloc(tasks, sizeof(int32_t));
    choice->priority = calloc(tasks, sizeof(int64_t));
    return choice->picks && choice->sites && choice->priority;
}

static void free_choice(Choice *choice)
{
    free(choice->picks);
    free(choice->sites);
    free(choice->priority);
}

static int new_offer(Offer *offer, int64_t longest_group)
{
    offer->node = calloc(longest_group, sizeof(int32_t));
    offer->mask = calloc(longest_group, sizeof(Mask));
    return offer->node && offer->mask;
}

static void free_offer(Offer *offer)
{
    free(offer->node);
    free(offer->mask);
}

void walker_free(Walker *w)
{
    if (!w)
        return;
    free(w->odds);
    free(w->nodes_of_kind);
    free(w->first_of_kind);
    free(w->has_node);
    free(w->free_us);
    free(w->device);
    free_choice(&w->choice);
    free_choice(&w->other_choice);
    free_choice(&w->best_choice);
    free_listing(&w->now);
    free_listing(&w->trial);
    free(w->best_order);
    free(w->after_us);
    free(w->late_us);
    free(w->pool_us);
    free(w->need_us);
    free(w->task_start_us);
    free(w->late);
    free(w->undo);
    free(w->rooms);
    free_offer(&w->here);
    free_offer(&w->wide);
    free_offer(&w->wider);
    free(w);
}

/* A walker on some nodes of a problem, in rising order; NULL where memory is short. */
Walker *walker_new(
    const Problem *p, const int32_t *nodes, int32_t node_count, const double *odds, uint64_t seed)
{
    Walker *w = calloc(1, sizeof(Walker));
    if (!w)
        return NULL;
    const size_t tasks = p->task_count, slots = (size_t)p->node_count * p->widest;
    int fits = new_choice(&w->choice, tasks) && new_choice(&w->other_choice, tasks) &&
               new_choice(&w->best_choice, tasks) &&
               new_listing(&w->now, tasks, p->longest_group) &&
               new_listing(&w->trial, tasks, p->longest_group) &&
               new_offer(&w->here, p->longest_group) && new_offer(&w->wide, p->longest_group) &&
               new_offer(&w->wider, p->longest_group);
    fits &= (w->nodes_of_kind = calloc(node_count, sizeof(int32_t))) != NULL;
    fits &= (w->first_of_kind = calloc(p->kind_count + 1, sizeof(int32_t))) != NULL;
    fits &= (w->has_node = calloc(p->node_count, sizeof(uint8_t))) != NULL;
    fits &= (w->free_us = calloc(slots, sizeof(int64_t))) != NULL;
    fits &= (w->device = calloc(slots, sizeof(uint8_t))) != NULL;
    fits &= (w->best_order = calloc(tasks, sizeof(int32_t))) != NULL;
    fits &= (w->after_us = calloc(tasks, sizeof(int64_t))) != NULL;
    fits &= (w->late_us = calloc(tasks, sizeof(int64_t))) != NULL;
    fits &= (w->pool_us = calloc(slots, sizeof(int64_t))) != NULL;
    fits &= (w->need_us = calloc(slots, sizeof(int64_t))) != NULL;
    fits &= (w->task_start_us = calloc(tasks, sizeof(int64_t))) != NULL;
    fits &= (w->late = calloc(tasks, sizeof(int32_t))) != NULL;
    fits &= (w->undo = calloc(2 * tasks, sizeof(Undo))) != NULL;
    fits &= (w->rooms = calloc(p->node_count, sizeof(Room))) != NULL;
    if (fits && odds) {
        fits &= (w->odds = calloc(p->mode_count, sizeof(double))) != NULL;
        if (fits)
            memcpy(w->odds, odds, sizeof(double) * p->mode_count);
    }
    if (!fits) {
        walker_free(w);
        return NULL;
    }
    w->problem = p;
    w->chance = seed;
    w->best_makespan_us = w->best_sum_us = INT64_MAX;
    for (int32_t k = 0, found = 0; k < p->kind_count; k++) {
        for (int32_t x = 0; x < node_count; x++)
            if (p->nodes[nodes[x]].kind == k) {
                w->nodes_of_kind[found++] = nodes[x];
                w->has_node[nodes[x]] = 1;
                w->device_count += p->nodes[nodes[x]].size;
            }
        w->first_of_kind[k + 1] = found;
    }
    return w;
}
